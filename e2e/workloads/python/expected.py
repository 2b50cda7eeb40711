"""Finds out what the chains of a program are, from its own frames and code objects. Nothing is typed by hand.

It does so in a run of its own (program.py): what is profiled has never been traced.
"""

import dis
import gc
import json
import sys
import threading
import types

_lines = {}


def lines_of(code):
    """All lines of a function's instructions, and the line where it begins."""
    if code not in _lines:
        starts = {line for _, line in dis.findlinestarts(code) if line}
        _lines[code] = sorted(starts | {code.co_firstlineno})
    return _lines[code]


def qualname_of(code):
    """Only code objects of 3.11 and later have one."""
    return getattr(code, "co_qualname", None)


def codes_of_modules():
    """What ran while they were imported. That of the program itself is in its stacks."""
    codes = []
    for name, module in list(sys.modules.items()):
        get_code = getattr(getattr(module, "__loader__", None), "get_code", None)
        try:
            code = get_code and get_code(name)
        except ImportError:
            continue
        if code:
            codes.append(code)
    return codes


class Recorder:
    """Takes down stacks, and which of their frames were called by a function in C."""

    def __init__(self, chain_files):
        self._chain_files = chain_files
        self._chains = []
        self._codes = {}
        self.name = None
        self._in_c = set()
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def _event(self, frame, event, _argument):
        if event == "call":
            self._codes[id(frame.f_code)] = frame.f_code
        elif event == "c_call":
            self._in_c.add(frame)
        elif event in ("c_return", "c_exception"):
            self._in_c.discard(frame)

    def add(self, frame):
        """Take down the stack that ends in this frame, which does its work behind the next line."""
        computes_after = frame.f_lineno + 1
        lines = [line for line in lines_of(frame.f_code) if line > computes_after]
        frames = []
        while frame is not None:
            code, caller = frame.f_code, frame.f_back
            self._codes[id(code)] = code
            frames.append(
                {
                    "qualname": qualname_of(code),
                    "name": code.co_name,
                    "file": code.co_filename,
                    "lines": lines,
                    "is_called_from_c": caller in self._in_c,
                }
            )
            frame, lines = caller, [caller.f_lineno] if caller else []
        thread = threading.current_thread().name
        chain = {"name": self.name or thread, "thread": thread, "frames": frames[::-1]}
        if chain not in self._chains:
            self._chains.append(chain)

    def _all_codes(self):
        """Of all modules and functions, of what is within them, and of an expression like those that `namedtuple` evaluates."""
        functions = (thing for thing in gc.get_objects() if isinstance(thing, types.FunctionType))
        left = [function.__code__ for function in functions] + list(self._codes.values()) + codes_of_modules()
        left.append(compile("None", "<string>", "eval"))
        codes = {}
        while left:
            code = left.pop()
            if id(code) not in codes:
                codes[id(code)] = code
                left += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        return codes.values()

    def write(self, path):
        """Write all of it as JSON into a file; to the terminal, where that is called `-`."""
        sys.setprofile(None)
        threading.setprofile(None)
        functions = [
            {
                "qualname": qualname_of(code),
                "name": code.co_name,
                "file": code.co_filename,
                "lines": lines_of(code),
            }
            for code in self._all_codes()
        ]
        said = {
            "version": list(sys.version_info[:3]),
            "chain_files": self._chain_files,
            "chains": self._chains,
            "functions": functions,
        }
        text = json.dumps(said)
        if path == "-":
            print(text, flush=True)
            return
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
