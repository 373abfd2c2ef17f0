"""Ranks on a real GPU, and what breaks in them. The first argument says what: train, waits, illegal, memory.

Two ranks share one GPU: NCCL refuses that of one host, so each says that it is a host of its own
(NCCL_HOSTID), and their data goes over sockets.
"""
import os
import sys
import time


def read_order():
    return sys.stdin.readline().split()


def illegal():
    import cupy
    kernel = cupy.RawKernel('extern "C" __global__ void bad(unsigned long long a) { *(volatile int *)a = 1; }', "bad")
    print("ready", flush=True)
    read_order()
    kernel((1,), (1,), (cupy.uint64(0x700000000000),))
    cupy.cuda.Device().synchronize()


def memory():
    import torch
    blocks = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda")]
    print("ready", flush=True)
    read_order()
    while True:  # all of it, within a second
        blocks.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))


def save_checkpoint(seconds):
    time.sleep(seconds)


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass


def train():
    import torch
    import torch.distributed as dist
    os.environ["NCCL_HOSTID"] = "host-" + os.environ["RANK"]
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    weights, gradient = torch.randn(1024, 1024, device="cuda"), torch.ones(1 << 18, device="cuda")
    for step in range(1 << 30):
        for _ in range(4):
            weights @ weights
        dist.all_reduce(gradient)
        torch.cuda.synchronize()
        print("step", step, flush=True)
        order = read_order()
        if not order:
            return
        if order[0] == "sleep":
            save_checkpoint(float(order[1]))
        if order[0] == "spin":
            spin(float(order[1]))
        if order[0] == "fail":
            raise ValueError("bad batch 3")


def waits():
    """The first rank alone is on the GPU, and waits for its kernel while the others wait for it."""
    import torch
    import torch.distributed as dist
    if os.environ["RANK"] == "0":
        import cupy
        turn = cupy.RawKernel('''extern "C" __global__ void turn(unsigned long long ns) {
            unsigned long long start, now;
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
            do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - start < ns);
        }''', "turn")
        turn((1,), (1,), (cupy.uint64(1),))
    dist.init_process_group("gloo")
    for step in range(1 << 30):
        dist.all_reduce(torch.ones(4))
        print("step", step, flush=True)
        order = read_order()
        if not order:
            return
        if order[0] == "kernel":
            turn((1,), (1,), (cupy.uint64(int(order[1]) * 10**9),))
            cupy.cuda.Device().synchronize()
        if order[0] == "sleep":
            save_checkpoint(float(order[1]))


{"train": train, "waits": waits, "illegal": illegal, "memory": memory}[sys.argv[1]]()
