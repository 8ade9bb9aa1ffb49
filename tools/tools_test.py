#!/usr/bin/python3 -B
"""Tests of `dev` and of the scripts in tools/."""
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_includes  # noqa: E402
import check_lengths  # noqa: E402
import check_where  # noqa: E402
import check_words  # noqa: E402

TREE = pathlib.Path(__file__).resolve().parent.parent
JUNIT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="x" tests="6">
  <testcase name="good" time="0.1" status="run"><system-out>fine</system-out></testcase>
  <testcase name="bad" time="2" status="fail"><failure message=""/><system-out>expected &lt;1&gt;</system-out></testcase>
  <testcase name="lab" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>skipped because of no root</system-out></testcase>
  <testcase name="gtest" time="0" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>a.cpp:3: Skipped
no etcd here
</system-out></testcase>
  <testcase name="missing" time="0" status="notrun"><skipped message="Unable to find executable"/><system-out/></testcase>
  <testcase name="off" time="0" status="disabled"><system-out>Disabled</system-out></testcase>
</testsuite>
"""


class TestReport(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = os.path.join(self.folder.name, "results.xml")

    def tearDown(self):
        self.folder.cleanup()

    def report(self, text):
        pathlib.Path(self.file).write_text(text)
        return subprocess.run([TREE / "tools" / "test_report.py", self.file], capture_output=True, text=True)

    def test_counts_each_outcome_and_names_failures_and_reasons(self):
        done = self.report(JUNIT)
        self.assertEqual((done.returncode, done.stdout), (0, "1 2 3\n"))
        self.assertIn("--- bad failed after 2.0 s\nexpected <1>", done.stderr)
        self.assertIn("missing failed after 0.0 s: Unable to find executable", done.stderr)
        self.assertIn("skipped: lab: skipped because of no root", done.stderr)
        self.assertIn("skipped: gtest: no etcd here", done.stderr)
        self.assertIn("skipped: off: disabled", done.stderr)

    def test_refuses_a_file_that_was_cut_off(self):
        done = self.report(JUNIT[:200])
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("cannot be read", done.stderr)


class CheckWords(unittest.TestCase):
    def found(self, files):
        """[(class, word)] in a tree of these files."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return [(how, word) for how, word, _, _ in check_words.places(pathlib.Path(folder))]

    def test_reads_the_names_of_tests(self):
        self.assertEqual(self.found({"jobs/a_test.cpp": "TEST(TakeUp, WhoeverLeadsSaysSo) {}\nCO_TEST(Look,\n        OverlooksNothing) { int words; }\n"}),
                         [("test", "whoever"), ("test", "says"), ("test", "look")])

    def test_splits_identifiers_and_spares_words_that_only_begin_alike(self):
        self.assertEqual(self.found({"health/a.h": "struct TcpLook; int look_spec; int lookup; int most_files; int almost; int keyword;"}),
                         [("identifier", "look"), ("identifier", "look"), ("identifier", "most_")])

    def test_knows_in_which_module_an_identifier_is_wrong(self):
        self.assertEqual(self.found({"health/a.h": "struct Plan;", "jobs/a.h": "struct Plan;"}), [("identifier", "Plan")])

    def test_reads_names_and_texts_in_sources_and_no_identifier(self):
        self.assertEqual(self.found({"gslb/a.cpp": 'int look; // a look\nf("words"); f("--least"); g("it is away now"); h("overlook"); R"(nobody sees this)";'}),
                         [("name", "words"), ("name", "least"), ("text", "is away")])

    def test_reads_comments_of_headers_and_leaves_tests_out(self):
        self.assertEqual(self.found({"net/a.h": "/// Closed by whoever opened it.", "net/a_test.cpp": 'f("nobody is here");'}), [("text", "whoever")])


class CheckLengths(unittest.TestCase):
    def names(self, text):
        return [name for name, _, _ in check_lengths.functions(text)]

    def run_check(self, files, listed, *arguments):
        """(status, output, list afterwards) in a tree of these files."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            list_file = pathlib.Path(folder, "long_functions.txt")
            list_file.write_text(listed)
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                status = check_lengths.main(list(arguments), pathlib.Path(folder), list_file)
            return status, output.getvalue(), list_file.read_text()

    def test_finds_functions_in_namespaces_and_classes_and_nothing_else(self):
        text = """
            namespace a::b {
            struct X : Y<int> {
                X(int i) : i_{i}, j_{0} {
                    // } in a comment
                }
                bool operator==(const X& other) const { return "}" == other.text && c != '}'; }
                int i_{0};
                std::vector<int> list = {1, 2};
            };
            enum class E { one, two };
            const std::vector<int> table = {1,
                                            2};
            template <typename T = int> auto X::operator()(T value = {}) const -> int {
                return [&] { return 1'000; }();
            }
            const auto lambda = [](int) { return 1; };
            } // namespace a::b
            """
        self.assertEqual(self.names(text), ["X", "operator==", "X::operator()", "lambda"])

    def test_counts_from_the_declaration_and_leaves_lines_of_raw_strings_out(self):
        text = 'int f(int a,\n      int b) {\n    return g(R"(\n1\n2\n)");\n}\nint g() {\n    return 1;\n}\n'
        self.assertEqual(list(check_lengths.functions(text)), [("f", 1, 4 + 1), ("g", 8, 3)])

    def test_refuses_long_files_and_functions_unless_they_are_listed(self):
        files = {"src/a/a.cpp": "void f() {\n" + "    g();\n" * 60 + "}\n", "src/a/b.h": "int x;\n" * 501, "src/a/b_test.cpp": "int x;\n" * 501}
        status, output, _ = self.run_check(files, "# nothing\n")
        self.assertEqual(status, 1)
        self.assertIn("src/a/a.cpp:1: f has 62 lines; at most 60 are allowed", output)
        self.assertIn("src/a/b.h:1: (file) has 501 lines", output)
        self.assertNotIn("b_test", output)
        self.assertEqual(self.run_check(files, "src/a/a.cpp f table of calls\nsrc/a/b.h (file) to split\n")[0], 0)
        self.assertIn("src/a/a.cpp f has no reason", self.run_check(files, "src/a/a.cpp f\nsrc/a/b.h (file) to split\n")[1])

    def test_wants_lines_removed_that_are_needed_no_more(self):
        listed = "# head\nsrc/a/a.cpp f to split\n"
        files = {"src/a/a.cpp": "void f() {\n}\n"}
        status, output, _ = self.run_check(files, listed)
        self.assertEqual(status, 1)
        self.assertIn("src/a/a.cpp f is not too long any more", output)
        self.assertEqual(self.run_check(files, listed, "--update")[::2], (0, "# head\n"))


class CheckIncludes(unittest.TestCase):
    def tree(self, files):
        """A tree in which every module has a folder, with these files."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        tree = pathlib.Path(folder.name)
        for module in [*check_includes.ranks(), *check_includes.OTHERS]:
            (tree / "src" / module).mkdir(parents=True)
        (tree / "tools").mkdir()
        for name, text in files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        return tree

    def test_refuses_the_wrong_direction_and_private_headers(self):
        tree = self.tree({"src/core/a.h": '#include "jobs/plan.h"\n', "src/jobs/plan.h": "", "src/core/inner.h": "",
                          "src/jobs/a.cpp": '#include "core/a.h"\n#include "core/inner.h"\n#include "jobs/plan.h"\n',
                          "tools/public_headers.txt": "# list\ncore/a.h\njobs/plan.h\n"})
        self.assertEqual([problem.split("; ")[0] for problem in check_includes.problems(tree)],
                         ["src/core/a.h:1: core may not include jobs", "src/jobs/a.cpp:2: core/inner.h is private to core"])

    def test_names_modules_without_a_folder_folders_without_a_rank_and_headers_that_do_not_exist(self):
        tree = self.tree({"src/extra/a.h": "", "tools/public_headers.txt": "core/gone.h\n"})
        (tree / "src" / "dns").rmdir()
        wrong = check_includes.problems(tree)
        self.assertEqual(len(wrong), 3)
        for text, problem in zip(("no folder src/dns", "src/extra", "core/gone.h does not exist"), wrong):
            self.assertIn(text, problem)

    def test_update_lists_what_other_modules_include(self):
        tree = self.tree({"src/core/a.h": "", "src/core/b.h": "", "src/core/b.cpp": '#include "core/b.h"\n', "src/net/a.cpp": '#include "core/a.h"\n'})
        self.assertEqual(check_includes.write_list(tree), ["core/a.h"])
        self.assertEqual(check_includes.problems(tree), [])


class CheckWhere(unittest.TestCase):
    def test_names_files_symbols_and_rows_that_are_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a.cpp").write_text("struct Store { void apply(); };")
            text = "| what | file | symbol |\n|---|---|---|\n| good | `a.cpp` | `Store::apply` |\n| no file | `b.cpp` | `x` |\n| no symbol | `a.cpp` | `Store::app` |\n| bad | a |\n"
            rows, wrong = check_where.problems(text, pathlib.Path(folder))
        self.assertEqual(rows, 4)
        self.assertEqual([problem.split(": ", 1)[1] for problem in wrong],
                         ["no file: there is no file b.cpp", "no symbol: a.cpp has no app", "a row is | what | `file` | `symbol` |"])


class Dev(unittest.TestCase):
    def dev(self, *arguments, **environment):
        return subprocess.run([TREE / "dev", *arguments], capture_output=True, text=True, env={**os.environ, **environment})

    def test_refuses_a_part_that_does_not_exist_before_anything_runs(self):
        done = self.dev("test", "lints", PATH=self.with_programs(**{"dpkg-query": "echo installed"}))
        self.assertEqual(done.returncode, 1)
        self.assertIn('there is no part "lints" (format lint release asan tsan)', done.stderr)

    def test_lists_the_modules_when_the_module_does_not_exist(self):
        done = self.dev("unit", "nothing")
        self.assertEqual(done.returncode, 1)
        for module in ("core", "gslb", "jobs/templates", "drivers", "drivers/ssh"):
            self.assertIn(f" {module} ", done.stderr.replace("\n", " "))

    @unittest.skipUnless(os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0, "needs root and mount namespaces")
    def test_leaves_no_policy_file_when_apt_fails(self):
        path = self.with_programs(**{"dpkg-query": "exit 1", "apt-get": "[ -x /usr/sbin/policy-rc.d ] && echo guarded >&2; exit 100"})
        script = 'mount -t tmpfs tmpfs /usr/sbin && { "$0" format --check; echo "status $?"; [ ! -e /usr/sbin/policy-rc.d ] && echo clean; }'
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "/bin/bash", "-c", script, str(TREE / "dev")], capture_output=True, text=True,
                              env={**os.environ, "PATH": path})
        self.assertIn("guarded", done.stderr)
        self.assertIn("installing failed", done.stderr)
        self.assertEqual(done.stdout, "status 1\nclean\n")

    def with_programs(self, **programs):
        """A PATH that begins with a folder of these shell scripts."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in programs.items():
            file = pathlib.Path(folder.name) / name
            file.write_text(f"#!/bin/sh\n{text}\n")
            file.chmod(0o755)
        return f"{folder.name}:/usr/bin:/bin"


if __name__ == "__main__":
    sys.exit(unittest.main())
