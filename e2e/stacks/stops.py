"""Stops a program wherever it is told to, and says what gdb makes of the stack there.

Runs inside gdb: `gdb -batch -x stops.py` with the path of a Unix socket in $STOPS_SOCKET. Each line that comes in is a
command in JSON, each line that goes out its answer:

  {"do": "attach", "pid": 7, "file": PATH or null}   file: where symbols and unwind data are read instead
  {"do": "connect", "socket": PATH, "file": PATH, "libraries": PATH}   to an emulator, its program, and that one's libraries
  {"do": "go"}                                       until somebody sends SIGINT
  {"do": "step", "count": 9, "thread": 3}            so many instructions of the third of the threads that compute
  {"do": "look"}                                     what the thread looks like now
  {"do": "detach"}

Answers have "error" where the program is gone, or where gdb fails.
"""

import json
import os
import socket

import gdb

# By the name of an architecture: the instruction of a system call, and registers.
SYSCALLS = {"i386:x86-64": b"\x0f\x05", "aarch64": b"\x01\x00\x00\xd4"}
REGISTERS = {
    "i386:x86-64": {"pc": "rip", "sp": "rsp", "fp": "rbp"},
    "aarch64": {"pc": "pc", "sp": "sp", "fp": "x29", "link": "x30"},
}
# The bound of the profiler.
FRAMES_MAX = 8192

SETTINGS = [
    "set pagination off",
    "set confirm off",
    "set width 0",
    "set debuginfod enabled off",
    "set auto-load no",
    "set breakpoint pending off",
    "set follow-fork-mode parent",
    "set detach-on-fork on",
    "set backtrace past-main on",
    "set backtrace past-entry on",
    "set backtrace limit %d" % FRAMES_MAX,
    "set step-mode on",
    "handle all nostop noprint pass",
    "handle SIGINT stop print nopass",
    "handle SIGTRAP stop print nopass",
]


def unsigned(value):
    return int(value) & 0xFFFFFFFFFFFFFFFF


def quietly(command):
    return gdb.execute(command, to_string=True)


def of_architecture(choices):
    return choices[gdb.selected_inferior().architecture().name()]


def connect(socket, file, libraries):
    quietly("set sysroot " + libraries)
    quietly("file " + file)
    quietly("target remote " + socket)
    quietly("set scheduler-locking step")


def attach(pid, file):
    if file:
        quietly("file " + file)
    quietly("attach %d" % pid)
    # Only the thread that is looked at moves while it is stepped.
    quietly("set scheduler-locking step")


def computes():
    """Whether the selected thread is not inside a system call."""
    pc = unsigned(gdb.newest_frame().pc())
    call = of_architecture(SYSCALLS)
    try:
        return bytes(gdb.selected_inferior().read_memory(pc - len(call), len(call))) != call
    except gdb.MemoryError:
        return True


def select(number):
    threads = sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num)
    computing = []
    for thread in threads:
        thread.switch()
        if computes():
            computing.append(thread)
    chosen = computing or threads
    chosen[number % len(chosen)].switch()


def step(count, thread):
    if thread is not None:
        select(thread)
    before = gdb.selected_thread().num
    said = quietly("stepi %d" % count)
    # A signal that was sent to have a blocked system call come back.
    return {"interrupted": "SIGINT" in said or gdb.selected_thread().num != before}


def look():
    frame = gdb.newest_frame()
    answer = {name: unsigned(frame.read_register(register)) for name, register in of_architecture(REGISTERS).items()}
    answer["tid"] = gdb.selected_thread().ptid[1]
    frames, end = [], ""
    while frame is not None:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            frames.append([unsigned(frame.pc()), frame.type() == gdb.SIGTRAMP_FRAME])
        try:
            caller = frame.older()
        except gdb.error as error:
            end = str(error)
            break
        if caller is None:
            end = gdb.frame_stop_reason_string(frame.unwind_stop_reason())
        frame = caller
    answer["frames"] = frames
    answer["end"] = end
    return answer


def obey(command):
    do = command["do"]
    if do == "attach":
        attach(command["pid"], command["file"])
        return {}
    if do == "connect":
        connect(command["socket"], command["file"], command["libraries"])
        return {}
    if do == "go":
        quietly("continue")
        return {}
    if do == "step":
        return step(command["count"], command["thread"])
    if do == "look":
        return look()
    quietly("detach")
    return {}


def main():
    for setting in SETTINGS:
        quietly(setting)
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(os.environ["STOPS_SOCKET"])
    stream = peer.makefile("rw")
    for line in stream:
        try:
            answer = obey(json.loads(line))
            if gdb.selected_inferior().pid == 0 and json.loads(line)["do"] != "detach":
                answer = {"error": "the program is gone"}
        except gdb.error as error:
            answer = {"error": str(error)}
        stream.write(json.dumps(answer) + "\n")
        stream.flush()


main()
