# An interpreter that knows its own native stack, as waits.c does: it prints what backtrace(3)
# says of a thread, which then waits in read(2), called as backtrace was. Called: waits.py [thread]
import ctypes
import os
import sys
import threading

libc = ctypes.CDLL(None)
libc.backtrace.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
libc.read.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
never, _keep = os.pipe()
frames = (ctypes.c_void_p * 201)()
byte = ctypes.create_string_buffer(1)


class Info(ctypes.Structure):  # Dl_info
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("start", ctypes.c_void_p)]


def tell():
    lines = [str(threading.get_native_id())]
    for address in frames:
        if not address:
            break
        info = Info()
        if libc.dladdr(ctypes.c_void_p(address - 1), ctypes.byref(info)) and info.name:
            lines.append("%x %s+%x" % (address, info.name.decode(), address - info.start))
        else:
            lines.append("%x -" % address)
    print("\n".join(lines + ["end"]), flush=True)


def deep(n):
    if n:
        return list(map(deep, [n - 1]))  # through C
    # One call in Python, whose instruction the interpreter does not rewrite for what is called.
    for call, arguments in (libc.backtrace, (frames, 200, 0)), (tell, ()), (libc.read, (never, ctypes.addressof(byte), 1)):
        call(*arguments)


if len(sys.argv) > 1:
    threading.Thread(target=deep, args=(9,), daemon=True).start()
    threading.Event().wait()
deep(9)
