import os, sys, threading, time
import torch
import torch.distributed as dist

scenario, out = sys.argv[1], sys.argv[2]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
wait = float(os.environ.get("DUMP_AFTER", "4"))


def dump():
    c10d = torch._C._distributed_c10d
    with open(f"{out}/rank_{rank}.pickle", "wb") as f:
        f.write(c10d._dump_fr_trace())
    with open(f"{out}/rank_{rank}.json", "wb") as f:
        f.write(c10d._dump_fr_trace_json())


def dump_later():
    time.sleep(wait)
    dump()
    time.sleep(4)
    os._exit(0)


def all_reduce(n=1024):
    return dist.all_reduce(torch.ones(n), async_op=True)


def steps(n):
    for _ in range(n):
        all_reduce().wait()


def mismatched_operation():
    steps(3)
    if rank == 1:
        out = [torch.zeros(1024) for _ in range(world)]
        dist.all_gather(out, torch.ones(1024))
    else:
        all_reduce().wait()


def mismatched_size_one_aborted():
    steps(3)
    if rank == 3:
        all_reduce(512)
        time.sleep(1)
        os._exit(1)  # no dump
    all_reduce().wait()


def mismatched_size():
    steps(3)
    if rank == 3:
        work = all_reduce(512)
        dump()  # before Gloo ends this process for what its peers send
        time.sleep(60)
    while not (os.path.exists(f"{out}/rank_3.json") and os.path.getsize(f"{out}/rank_3.json")):
        time.sleep(0.1)
    all_reduce(1024).wait()


def two_behind():
    steps(3)
    if rank == 2:
        time.sleep(60)
    works = [all_reduce(n) for n in (1024, 2048)]
    for w in works:
        w.wait()


def p2p_only():
    t = torch.ones(256)
    right, left = (rank + 1) % world, (rank - 1) % world
    for _ in range(2):
        if rank % 2 == 0:
            dist.send(t, right)
            dist.recv(t, left)
        else:
            dist.recv(t, left)
            dist.send(t, right)
    if rank == 2:
        time.sleep(60)
    if rank == 3:
        dist.recv(t, 2)


def operations_of_every_kind():
    t = torch.ones(8)
    many = [torch.ones(8) for _ in range(world)]
    dist.broadcast(t, 0)
    dist.reduce(t, 0)
    dist.all_gather([torch.zeros(8) for _ in range(world)], t)
    dist.gather(t, many if rank == 0 else None, 0)
    dist.scatter(t, many if rank == 0 else None, 0)
    dist.all_to_all_single(torch.zeros(world), torch.ones(world))
    dist.barrier()
    if rank % 2 == 0:
        dist.send(t, rank + 1)
    else:
        dist.recv(t, rank - 1)
    dist.barrier()


def hang_inside_a_pipeline():
    # Data parallel groups [0,2], [1,3]; pipeline pairs (0,1), (2,3).
    dp = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine = dp[rank % 2]
    t = torch.ones(64)
    for _ in range(2):
        dist.all_reduce(t, group=mine)
    if rank == 3:
        time.sleep(60)       # the culprit: never sends
    if rank == 2:
        dist.recv(t, 3)      # waits for 3
    dist.all_reduce(t, group=mine)  # 0 waits for 2, 1 waits for 3


if __name__ == "__main__":
    dist.init_process_group("gloo")
    threading.Thread(target=dump_later, daemon=True).start()
    try:
        globals()[scenario]()
    except Exception as e:
        print(rank, "raised", type(e).__name__, str(e)[:200], flush=True)
    time.sleep(60)
