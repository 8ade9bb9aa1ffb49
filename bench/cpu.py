"""The CPU time of a process."""
import time


def cpu_seconds(pid):
    """User and system time of all threads of the process, also of those that ended."""
    return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3)
