"""A job of four ranks whose collectives Gloo carries and PyTorch's own Flight
Recorder of 2.6.0 records, called where ProcessGroupNCCL.cpp calls it."""
import os, sys, threading, time
import torch
import torch.distributed as dist

import recorder

scenario, out = sys.argv[1], sys.argv[2]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
wait = float(os.environ.get("DUMP_AFTER", "4"))
torch.set_num_threads(1)


class Group:
    """The bookkeeping of ProcessGroupNCCL: sequence numbers, status, a watchdog."""

    made = 0

    def __init__(self, name, desc, ranks, gloo):
        self.ranks, self.gloo = ranks, gloo
        self.collectives = self.p2p = self.ops = 0
        self.known = False
        self.theirs = recorder.Group(Group.made, name, desc)
        Group.made += 1
        self.works, self.lock = [], threading.Lock()
        threading.Thread(target=self.watch, daemon=True).start()

    def enter(self, title, inputs, outputs, start, p2p=False):
        if not self.known:  # initNCCLComm
            self.theirs.ranks(self.ranks)
            self.known = True
        if p2p:
            self.p2p += 1
        else:
            self.collectives += 1
        self.ops += 1
        work = recorder.record(self.theirs, self.collectives, self.p2p, self.ops, "nccl:" + title, inputs, outputs, p2p)
        seq = self.p2p if p2p else self.collectives
        self.theirs.enqueued(seq)
        gloo = start()
        with self.lock:
            self.works.append((seq, work, gloo))
        return gloo

    def watch(self):  # ProcessGroupNCCL::watchdogHandler
        while True:
            time.sleep(0.1)
            with self.lock:
                for seq, work, gloo in list(self.works):
                    work.started()
                    self.theirs.started(seq)
                    # What failed on Gloo would wait for ever on NCCL.
                    if not gloo.is_completed() or not gloo.is_success():
                        continue
                    work.ended()
                    self.theirs.completed(seq)
                    work.retire()
                    self.works.remove((seq, work, gloo))

    def all_reduce(self, n=1024):
        t = torch.ones(n)
        return self.enter("all_reduce", [t], [t], lambda: dist.all_reduce(t, group=self.gloo, async_op=True))

    def all_gather(self, n=1024):
        t, flat = torch.ones(n), torch.empty(len(self.ranks), n)
        return self.enter("all_gather", [t], [flat], lambda: dist.all_gather(list(flat.unbind(0)), t, group=self.gloo, async_op=True))

    def send(self, to, n=256):
        t, me = torch.ones(n), self.ranks.index(rank)
        return self.enter(f"send {me}->{self.ranks.index(to)}", [t], [t], lambda: dist.isend(t, to, group=self.gloo), p2p=True)

    def recv(self, source, n=256):
        t, me = torch.ones(n), self.ranks.index(rank)
        return self.enter(f"recv {me}<-{self.ranks.index(source)}", [t], [t], lambda: dist.irecv(t, source, group=self.gloo), p2p=True)


def dump():
    for ending, text in (("pickle", recorder.dump()), ("json", recorder.dump_json())):
        with open(f"{out}/rank_{rank}.{ending}", "wb") as f:
            f.write(text)


def dump_later():
    time.sleep(wait)
    dump()
    time.sleep(4)
    os._exit(0)


def steps(n):
    for _ in range(n):
        everybody.all_reduce().wait()


def healthy():
    steps(4)


def mismatched_operation():
    steps(3)
    if rank == 1:
        everybody.all_gather().wait()
    else:
        everybody.all_reduce().wait()


def mismatched_size():
    steps(3)
    time.sleep(0.5)  # the watchdog has retired them
    if rank == 3:
        everybody.all_reduce(512)
        time.sleep(0.5)
        dump()  # before Gloo ends this process for what its peers send
        time.sleep(60)
    while not (os.path.exists(f"{out}/rank_3.json") and os.path.getsize(f"{out}/rank_3.json")):
        time.sleep(0.1)
    everybody.all_reduce(1024).wait()


def mismatched_size_one_aborted():
    steps(3)
    if rank == 3:
        everybody.all_reduce(512)
        time.sleep(1)
        os._exit(1)  # no dump
    everybody.all_reduce().wait()


def two_behind():
    """The buffer holds six entries and has gone round."""
    steps(8)
    if rank == 2:
        time.sleep(60)
    works = [everybody.all_reduce(n) for n in (1024, 2048)]
    for w in works:
        w.wait()


def p2p_only():
    right, left = (rank + 1) % world, (rank - 1) % world
    for _ in range(2):
        works = [everybody.send(right), everybody.recv(left)]
        for w in works:
            w.wait()
    if rank == 2:
        time.sleep(60)
    if rank == 3:
        everybody.recv(2).wait()


def never_dumps():
    steps(3)
    if rank == 2:
        os.kill(os.getpid(), 19)  # SIGSTOP: nothing in it runs any more
    everybody.all_reduce().wait()


def hang_inside_a_pipeline():
    data = [Group("1", "undefined", [0, 2], dist.new_group([0, 2])), Group("2", "undefined", [1, 3], dist.new_group([1, 3]))]
    mine = data[rank % 2]
    for _ in range(2):
        mine.all_reduce(64).wait()
    if rank == 3:
        time.sleep(60)  # the culprit: it never sends
    if rank == 2:
        everybody.recv(3).wait()
    mine.all_reduce(64).wait()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    everybody = Group("0", "default_pg", list(range(world)), dist.group.WORLD)
    threading.Thread(target=dump_later, daemon=True).start()
    try:
        globals()[scenario]()
    except Exception as e:
        print(rank, "raised", type(e).__name__, str(e)[:200], flush=True)
    time.sleep(60)
