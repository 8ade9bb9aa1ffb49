"""The hardening of the program, which parses untrusted bytes, read from the ELF file."""
import re
import subprocess

from orrery_lab import check, program


def tool(*command):
    program(command[0], "binutils")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def check_hardening(path):
    """Fails unless the program has each protection of ORRERY_HARDENING (cmake/orrery.cmake)."""
    header, segments, dynamic = tool("readelf", "-hW", path), tool("readelf", "-lW", path), tool("readelf", "-dW", path)
    imported = tool("nm", "-D", "--undefined-only", path)
    check("the program is position independent", re.search(r"Type:\s+DYN", header), header)
    check("it has full RELRO: relocations are made at start-up and then read only", "GNU_RELRO" in segments and re.search(r"FLAGS.*BIND_NOW|FLAGS_1.*NOW", dynamic), dynamic)
    check("its stack is not executable", re.search(r"GNU_STACK.* RW +0", segments), segments)
    check("no segment is both writable and executable", not re.search(r"LOAD.* RWE ", segments), segments)
    check("its functions check their stack", "__stack_chk_fail" in imported, imported[:2000])
    fortified = sorted(set(re.findall(r"__\w+_chk\b", imported)) - {"__stack_chk_fail"})
    check(f"calls into the C library are bounded by FORTIFY: {' '.join(fortified)}", len(fortified) >= 3)
    check("containers check their indexes (libstdc++ assertions)", "__glibcxx_assert_fail" in imported or b"__n < this->size()" in open(path, "rb").read())
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--section=.text", "--start-address=" + entry(header), f"--stop-address={int(entry(header), 16) + 2_000_000:#x}", path],
                          capture_output=True, text=True, check=True).stdout
    check("functions begin with a landing pad for indirect calls (CET)", code.count("endbr64") > 1000, code[:500])


def entry(header):
    return re.search(r"Entry point address:\s+(0x[0-9a-f]+)", header).group(1)
