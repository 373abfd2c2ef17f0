# Threads that wait, each in its own way, for a test that compares how tracecore and
# faulthandler see them. Called: scene.py SCENE. It writes "IDENT TID" of each thread to
# stdout, then "ready". What comes on stdin lets the main thread go on into C, where it
# keeps the interpreter lock. SIGUSR1 makes faulthandler write all threads to stderr.
import faulthandler
import functools
import os
import queue
import signal
import sys
import threading
import time

never, _keep = os.pipe()
begun = threading.Semaphore(0)


def tell():
    os.write(1, b"%d %d\n" % (threading.get_ident(), threading.get_native_id()))


def start(function, *args):
    def run():
        tell()
        begun.release()
        function(*args)

    threading.Thread(target=run, daemon=True).start()
    begun.acquire()


def in_a_lock():
    lock = threading.Lock()
    lock.acquire()
    with lock:
        pass


def asleep():
    for seconds in [1 << 20]:
        time.sleep(
            seconds
        )


def in_a_read():
    os.read(never, 1)


def in_c():
    import ctypes
    ctypes.CDLL(None).read(never, ctypes.create_string_buffer(1), 1)


def in_c_with_the_lock():
    import ctypes
    ctypes.PyDLL(None).read(never, ctypes.create_string_buffer(1), 1)


def numbers():
    yield 1
    yield queue.Queue().get()


def in_a_generator():
    return sum(
        number
        for number in numbers()
    )


def deep(n):
    if n == 0:
        threading.Event().wait()
    deep(n - 1)


class Model:
    class Layer:
        def forward(self):
            return (lambda: never_set.wait())()

        @functools.lru_cache()
        def cached(self):
            return self.forward()

        def __lt__(self, other):
            return self.cached()

    def __call__(self):
        return sorted([Model.Layer(), Model.Layer()])


never_set = threading.Event()


def Größe():
    def Ωμέγα():
        def 𠀀():
            time.sleep(1 << 20)
        𠀀()
    Ωμέγα()


def far_apart():
    source = "def f():\n g()\n" + "\n" * 700 + "def g():\n x = (\n" + "\n" * 300 + "  wait())\n" + " y = 1\n" * 300 + "f()"
    exec(compile(source, "Größe/漢字/𠀀.py", "exec"), {"wait": never_set.wait})


def with_one_that_raised():
    try:
        raise ValueError
    except ValueError:
        try:
            raise KeyError
        finally:
            never_set.wait()


def coroutines():
    import asyncio

    async def inner():
        never_set.wait()

    async def outer():
        await inner()

    asyncio.new_event_loop().run_until_complete(outer())


def spin():
    while True: pass


def still():
    for function in (in_a_lock, asleep, in_a_read, in_c, in_a_generator, Model(), Größe, far_apart, with_one_that_raised, coroutines):
        start(function)
    start(deep, 60)
    start(deep, 150)


def main(scene):
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if scene == "fork" and os.fork():
        os.wait()
    if scene == "spin":
        start(spin)
        start(spin)
    elif scene == "no C":
        for function in (in_a_lock, asleep, in_a_read, in_a_generator, Model(), Größe, far_apart):
            start(function)
    elif scene == "seven":
        for function in (in_a_lock, asleep, in_a_read, in_c, in_a_generator):
            start(function)
        start(deep, 95)
    else:
        still()
    tell()
    os.write(1, b"ready %d\n" % os.getpid())
    os.read(0, 1)
    in_c_with_the_lock()


if len(sys.argv) > 1:
    main(sys.argv[1])
