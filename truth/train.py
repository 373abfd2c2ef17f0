"""The job of the truth benchmark: a training loop of PyTorch with Gloo.

Each rank reads orders from standard input, one a line, and carries one out in the thread
that trains, its main thread or another one, before the next step. It says "ready", "step N",
"done ORDER" on standard output.
A comment "stands: ORDER" marks the lines that this thread is in while it carries that out,
or in which it raises what Python then displays.
Nothing in it knows tracecore.
"""
import atexit
import ctypes
import errno
import hashlib
import mmap
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset

WORLD = int(os.environ["TRUTH_WORLD"])
# As the launcher of PyTorch Lightning does, the first process starts the others.
if "TRUTH_LEADS" in os.environ and "LOCAL_RANK" not in os.environ:
    os.environ.update(NODE_RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(WORLD))
    for other in range(1, WORLD):
        subprocess.Popen([sys.executable, "-u", *sys.argv], env=os.environ | {"LOCAL_RANK": str(other)})
# A real launcher says who the process is; else who starts it does.
RANK = int(next(os.environ[name] for name in ("TRUTH_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK") if name in os.environ))
ALL = ("stop", "around", "saved", "apart", "second")  # orders that all ranks carry out
orders = queue.Queue()
second = None  # a group beside that of all
calls = queue.Queue()  # for the main thread, where another one trains
slower = 0.0
saving = 0.0  # how long rank 0 saves once the job is asked to end
libc = ctypes.CDLL(None)
libc_holding_the_gil = ctypes.PyDLL(None)


def say(*words):
    print(*words, flush=True)


def listen():
    for line in sys.stdin:
        orders.put(line.split())
    os._exit(0)  # who started the job is gone


class Rows(Dataset):
    """Rows whose making takes a worker some CPU, or much memory, or fails."""

    def __init__(self, seconds, bytes_of_each=0, sleeps=0, crashes=False, raises=False, reads="", maps=""):
        self.seconds, self.bytes_of_each, self.sleeps, self.crashes, self.raises = seconds, bytes_of_each, sleeps, crashes, raises
        self.reads, self.maps = reads, maps

    def __len__(self):
        return 4

    def __getitem__(self, i):
        if self.bytes_of_each:
            hoard = []
            for _ in range(self.bytes_of_each >> 20):
                hoard.append(bytearray(os.urandom(1 << 20)))
        if self.crashes or self.raises:
            time.sleep(1)  # who looks for the worker finds it
        if self.crashes:
            ctypes.string_at(0)
        if self.raises:
            raise ValueError("bad row 3")
        if self.reads and i == 0:
            read(self.reads)
        if self.maps and i == 0:
            touch(self.maps)
        if i == 0:  # once and for long: a worker that sleeps for each row gets on
            time.sleep(self.sleeps)
        burn(self.seconds / len(self))
        return torch.zeros(1)


def burn(seconds):
    end = time.monotonic() + seconds
    a = torch.rand(64, 64)
    while time.monotonic() < end:
        a = (a @ a).clamp(-1, 1)


def lock(seconds):
    held = threading.Lock()
    held.acquire()
    threading.Timer(seconds, held.release).start()
    with held:  # stands: lock
        pass


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:  # stands: spin
        pass  # stands: spin


def tries(seconds):
    """Tries again and again to open what does not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            open("/mnt/nothing")
        except FileNotFoundError:
            time.sleep(1)  # stands: tries


def around():
    """Each rank sends to the next before it receives, and Gloo's send waits for its receive."""
    data = torch.ones(1 << 20)
    dist.send(data, (RANK + 1) % WORLD)  # stands: around
    dist.recv(data, (RANK - 1) % WORLD)


def in_thread(does, *arguments, **more):
    worker = threading.Thread(target=does, args=arguments, kwargs=more)
    worker.start()
    worker.join()  # stands: threadread


def in_loader(seconds, **how):
    # By a server, as from Python 3.14 on: a fork of a process with threads may never come to its work.
    for _ in DataLoader(Rows(seconds, **how), num_workers=1, multiprocessing_context="forkserver"):  # stands: loadersleep loaderread loaderraise
        pass


def spin_in_c(seconds, library):
    """Spins on a lock in memory that a child shares, until the child opens it."""
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    held = ctypes.c_int.from_buffer(shared)
    library.pthread_spin_init(ctypes.byref(held), 1)
    library.pthread_spin_lock(ctypes.byref(held))
    child = os.fork()
    if child == 0:
        libc.sleep(int(seconds))
        libc.pthread_spin_unlock(ctypes.byref(held))
        os._exit(0)
    library.pthread_spin_lock(ctypes.byref(held))  # stands: spinlock spingil
    os.waitpid(child, 0)


def one_call(seconds):
    """Computes in one call of compiled code."""
    began, rounds = time.monotonic(), 1 << 16
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", rounds)
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", int(rounds * seconds / (time.monotonic() - began)))


def end_in_thread(status):
    threading.Thread(target=os._exit, args=(status,)).start()
    time.sleep(60)


def in_program(seconds):
    subprocess.run([sys.executable, "-c", f"import time\ne = time.monotonic() + {seconds}\nwhile time.monotonic() < e: pass"], check=True)


def read(path):
    with open(path, "rb") as f:  # stands: read
        while f.read(1 << 20):  # stands: read
            pass


def touch(path):
    """Reads each page of a mapped file."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as pages:  # stands: map
        sum(pages[i] for i in range(0, len(pages), 4096))  # stands: map


def write_at_once(path, megabytes):
    """Writes all of it in one system call."""
    f = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    data = memoryview(bytearray(megabytes << 20))
    while data:
        data = data[os.write(f, data):]
    os.close(f)


def in_pieces(seconds):
    """Many programs that each compute for a moment, as a compiler's do."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        subprocess.run(["bash", "-c", "for ((i = 0; i < 60000; i++)); do :; done"], check=True)


def in_daemon(seconds):
    """A program that leaves its parent computes; this one looks now and then whether it is done."""
    done = f"/tmp/truth-daemon-{os.getpid()}"
    program = f"import time\ne = time.monotonic() + {seconds}\nwhile time.monotonic() < e: pass\nopen({done!r}, 'w').close()"
    subprocess.run(["bash", "-c", 'setsid python3 -c "$1" < /dev/null > /dev/null & disown', "bash", program], check=True)
    while not os.path.exists(done):
        time.sleep(0.2)
    os.remove(done)


def churn(path, seconds):
    """Writes and reads a file of the machine's own disk."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with open(path, "wb") as f:
            f.write(bytes(8 << 20))
            f.flush()
            os.fsync(f.fileno())
        read(path)
    os.remove(path)


def download(url):
    with urllib.request.urlopen(url) as body:
        while body.read(1 << 16):
            pass


def ends_when_asked(*_):
    """Saves, and ends well."""
    time.sleep(0.5)
    os._exit(0)


def saves_when_asked(*_):
    """The job saves after this step, and ends well."""
    orders.put(["saved"])


def goes_on_alone():
    """The group is over, as each rank sees it some seconds after the last. Each then evaluates by itself."""
    time.sleep(2.0 * RANK)
    dist.destroy_process_group()
    for _ in range(15):
        burn(0.2)
        time.sleep(0.8)


def makes_a_second_group():
    """Each step uses it, too, from then on."""
    global second
    second = dist.new_group()


def in_main_thread(call):
    if threading.current_thread() is threading.main_thread():
        call()
    else:
        calls.put(call)


def run(order, *arguments):
    words = ("save", "read", "map", "words", "threadread", "threadmap", "threadsave", "copy", "loaderread", "loadermap", "loadermapthread", "churn", "download")
    seconds = float(arguments[0]) if arguments and order not in words else 0
    if order == "sleep":
        time.sleep(seconds)  # stands: sleep
    elif order == "usleep":
        libc.sleep(int(seconds))  # stands: usleep
    elif order == "gil":
        libc_holding_the_gil.sleep(int(seconds))  # stands: gil
    elif order == "lock":
        lock(seconds)
    elif order == "tries":
        tries(seconds)
    elif order == "spin":
        spin(seconds)
    elif order == "spinlock":
        spin_in_c(seconds, libc)
    elif order == "spingil":
        spin_in_c(seconds, libc_holding_the_gil)
    elif order == "onecall":
        one_call(seconds)
    elif order == "compute":
        burn(seconds)
    elif order == "thread":
        in_thread(burn, seconds)
    elif order == "threadread":
        in_thread(read, arguments[0])
    elif order == "threadmap":
        in_thread(touch, arguments[0])
    elif order == "threadsave":
        in_thread(write_at_once, arguments[0], int(arguments[1]))
    elif order == "copy":
        subprocess.run(["dd", "if=/dev/zero", f"of={arguments[0]}", "bs=4M", f"count={int(arguments[1]) // 4}", "status=none"], check=True)
    elif order == "loaderread":
        in_loader(0, reads=arguments[0])
    elif order == "loadermap":
        in_loader(0, maps=arguments[0])
    elif order == "loadermapthread":
        in_thread(in_loader, 0, maps=arguments[0])
    elif order == "pieces":
        in_pieces(seconds)
    elif order == "daemon":
        in_daemon(seconds)
    elif order == "churn":
        churn(arguments[0], float(arguments[1]))
    elif order == "download":
        download(arguments[0])
    elif order == "handle":
        in_main_thread(lambda: signal.signal(signal.SIGTERM, ends_when_asked))
    elif order == "handlesave":
        global saving
        saving = seconds
        for asks in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            in_main_thread(lambda asks=asks: signal.signal(asks, saves_when_asked))
    elif order == "loader":
        in_loader(seconds)
    elif order == "program":
        in_program(seconds)
    elif order == "hoard":  # a worker that takes memory until it is killed for it
        in_loader(0, bytes_of_each=int(arguments[1]))
    elif order == "hoardself":
        hoard = []
        while True:
            hoard.append(bytearray(os.urandom(1 << 20)))
    elif order == "pipe":  # waits for a child that says nothing
        with subprocess.Popen(["sleep", str(seconds)], stdout=subprocess.PIPE) as child:
            child.stdout.read()  # stands: pipe
    elif order == "save":
        torch.save(torch.zeros(int(arguments[1]) << 18), arguments[0])  # stands: save
    elif order == "read":
        read(arguments[0])
    elif order == "loadersleep":  # waits for a worker that does nothing
        in_loader(0, sleeps=seconds)
    elif order == "loadersegv":
        in_loader(0, crashes=True)
    elif order == "loaderraise":
        in_loader(0, raises=True)
    elif order == "files":  # takes more descriptors than it may have
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        hoard = [open("/dev/null") for _ in range(100)]  # stands: files
    elif order == "fill":  # writes to a disk that is full
        with open("/dev/full", "wb", buffering=0) as f:
            f.write(b"x")  # stands: fill
    elif order == "slow":  # each step from now on
        global slower
        slower = seconds / 1000
    elif order == "map":  # touches each page of a file
        touch(arguments[0])
    elif order == "exit":
        os._exit(int(seconds))
    elif order == "threadexit":  # as a watchdog does
        end_in_thread(int(seconds))
    elif order == "status":
        sys.exit(int(seconds))
    elif order == "words":
        sys.exit(" ".join(arguments))
    elif order == "leave":  # ends well, too early
        sys.exit(0)
    elif order == "raise":
        raise ValueError("bad batch 3")  # stands: raise
    elif order == "raiselate":  # its process ends later than it fails
        atexit.register(time.sleep, seconds)
        raise ValueError("bad batch 3")  # stands: raiselate
    elif order == "raisethread":
        threading.Thread(target=time.sleep, args=(seconds,)).start()
        raise ValueError("bad batch 3")  # stands: raisethread
    elif order == "leavegroup":  # and lives on
        dist.destroy_process_group()
        say("done", order, *arguments)
        time.sleep(seconds)  # stands: leavegroup
        os._exit(0)
    elif order == "giveup":  # one of its groups, and trains on in the other
        global second
        dist.destroy_process_group(second)
        second = None
    elif order == "cuda":  # as PyTorch says that its GPU failed
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at some other API call.")  # stands: cuda
    elif order == "readonly":  # a file system that the kernel has stopped writing to
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/mnt/ckpt/step_100.pt")  # stands: readonly
    elif order == "segv":
        ctypes.string_at(0)
    elif order == "abort":
        os.abort()
    elif order == "throw":  # what nobody catches in C++, as a library does that finds a damaged file
        ctypes.CDLL("libstdc++.so.6")._ZSt21__throw_runtime_errorPKc(b"weights.bin is damaged")
    elif order == "size":  # more than the others give
        dist.all_reduce(torch.ones(1 << 16))
    elif order == "broadcast":  # another collective than the others
        dist.broadcast(torch.ones(1024), src=RANK)
    elif order in ALL:
        return order
    else:
        raise SystemExit(f"no order {order}")
    return None


def main():
    threading.Thread(target=listen, daemon=True).start()
    meant = int(os.environ.get("TRUTH_ONE", RANK)) == RANK
    if meant:
        time.sleep(float(os.environ.get("TRUTH_LATE", "0")))
    if meant and "TRUTH_DIES" in os.environ:
        say("done", "dies")
        time.sleep(0.2)  # until that is heard
        raise ImportError("no module named truth")  # stands: start
    host, _, port = os.environ["TRUTH_MASTER"].rpartition(":")
    if "TRUTH_FIFOS" in os.environ and "TORCHELASTIC_RUN_ID" in os.environ:
        port = int(port) + 1  # a real torchrun has its own store at that one
    dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}", rank=RANK, world_size=WORLD)
    data = torch.ones(int(os.environ.get("TRUTH_ELEMENTS", "65536")))
    pause, work = float(os.environ.get("TRUTH_PAUSE", "0.03")), float(os.environ.get("TRUTH_WORK", "0.01"))
    say("ready", os.getpid())
    step, last = 0, 0.0
    while True:
        told = None
        try:
            order = orders.get_nowait()
        except queue.Empty:
            pass
        else:
            told = run(*order)
            if told is None:
                say("done", *order)
        burn(work)
        time.sleep(pause + slower)
        # All do it at the same step: the sum of those who were told to.
        flags = torch.tensor([float(told == order) for order in ALL])
        dist.all_reduce(flags)
        if flags[0]:
            break
        if flags[1]:
            around()
        if flags[2]:
            if RANK == 0:
                time.sleep(saving)
            dist.barrier()
            break
        if flags[3]:
            goes_on_alone()
            break
        if flags[4]:
            makes_a_second_group()
        if second is not None:
            dist.all_reduce(torch.ones(4096), group=second)
        dist.all_reduce(data)
        data.clamp_(-1, 1)
        step += 1
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            say("step", step)
    if dist.is_initialized():
        dist.destroy_process_group()
    say("end")


def trains_in_a_thread():
    """As trainers of Ray do: the main thread waits for the one that trains."""
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(main)
        training.add_done_callback(lambda _: calls.put(None))
        while call := calls.get():
            call()
        training.result()


def spawned(index):
    """A rank that learns who it is after it was started."""
    sys.stdin = open(f"/proc/{os.getppid()}/fd/0")
    host, _, port = os.environ["TRUTH_MASTER"].rpartition(":")
    os.environ.update(RANK=str(RANK), LOCAL_RANK=str(index), WORLD_SIZE=str(WORLD), MASTER_ADDR=host, MASTER_PORT=port)
    main()


if __name__ == "__main__":  # workers of a DataLoader import this file
    if "TRUTH_FIFOS" in os.environ:  # a launcher gives its own standard input and output
        sys.stdin = open(f"{os.environ['TRUTH_FIFOS']}/{RANK}.in")
        sys.stdout = open(f"{os.environ['TRUTH_FIFOS']}/{RANK}.out", "w")
    if "TRUTH_SPAWNS" in os.environ:
        torch.multiprocessing.spawn(spawned, nprocs=1)
    elif "TRUTH_THREAD" in os.environ:
        trains_in_a_thread()
    else:
        main()
