"""Bounds what the scoring of one answer may do: its time, its memory, and the code it may run."""
import contextlib
import resource
import signal
import sys

SECONDS = 5  # of processor time to score an answer
BYTES = 4 << 30  # of address space, beyond which an allocation fails
HARMLESS = {"sympy", "Integer", "Symbol"}  # names that sympy gives to the parts of an arithmetic expression

watching = False
refused = 0  # answers that were code


def audit(event, args):
    """Refuses to evaluate text, as some environments do with answers, unless it computes with constants alone."""
    global refused
    if watching and event == "exec" and args[0].co_filename == "<string>":
        if set(args[0].co_names) - HARMLESS or any(hasattr(c, "co_code") for c in args[0].co_consts):
            refused += 1
            raise ValueError("the answer is code")


def late(*_):
    if watching:
        raise TimeoutError(f"no score in {SECONDS} seconds of processor time")


@contextlib.contextmanager
def limits():
    global watching
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    watching = True
    try:
        yield
    finally:
        watching = False
        signal.setitimer(signal.ITIMER_PROF, 0)


sys.addaudithook(audit)
signal.signal(signal.SIGPROF, late)
with contextlib.suppress(ValueError, OSError):  # the system sets a lower limit or none
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
