"""What a process has used."""
import time


def cpu_seconds(pid):
    """User and system time of all its threads, those that have ended too."""
    return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3)
