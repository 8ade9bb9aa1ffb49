#!/usr/bin/python3
"""Finds words that docs/glossary.md replaces, in what readers of the code and users of the program meet.

Four classes of places are searched, each with rules of its own:
  identifier  names in headers (src/**/*.h), split at underscores and capitals
  name        string literals that are names: fields of kinds and of JSON, settings, commands, metrics
  text        string literals with spaces (help, summaries, log lines, errors) and comments in headers
  test        names of suites and tests (src/**/*_test.cpp), split at capitals

tools/words_known.txt lists how often each known offender occurs in each module. The list may only shrink: the check fails when there are more, and also
when there are fewer, until --update has written the smaller number. --update never adds an offender; without a list it makes one.
--show WORD prints every place of a word.
"""
import collections
import pathlib
import re
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent
KNOWN = TREE / "tools" / "words_known.txt"

# Parts of identifiers and names: `look` is found in `look_spec` and `TcpLook`, not in `lookup`.
PARTS = set("""look looks looked lookout word words settle settled settling settles standing tell tells told say says said
  door doors errand errands foresee foresight informed remembering patience trouble silence""".split())
# First parts: limits are max_ and min_.
FIRST_PARTS = set("most longest least greatest fewest".split())
# Whole identifiers, and names. Where an identifier is right in one module and wrong in another, the modules of the latter stand behind it.
WHOLE = {}
for line in """
  place places take take_in take_up take_places_again
  Watching: health; Watched: health; Wanted: health; Verdict: health; Finding: health; Word; is_well; rest; resting; unrest; still_rests; bury; shake
  bell_; Spot: health; Inbox: health; Order: health jobs; Plan: health; elsewhere; Names: health; JoinedChecker; is_informed; PushBoard; Said
  Signal: gslb; Doubt; Rule: gslb; decide_name; names_using; note_name; turn: gslb; look_again; World; Serving; Tailored; Choice: dns gslb; Draw: dns gslb; Picking
  Hypothesis; PoolNow; NameSink; Publication; Publishing; PublisherMaker; DriverPublishers; publish_in_halves
  What; Row: jobs; JobHead; replayed: jobs; called: jobs; hand_out; pass_role_on; may_roll; parked: jobs; Round: jobs; act: jobs; let_go_of_all
  Collector: jobs; begins_here; never_began; why_not_begun; Sorting; Trailer; Scissors; keep_house
  House; Plant; Town; Stack; furnish; nap; PlayedService; RawPeer; Gate: store; freeze: store; thaw: store; aside_mark; moved: store; Tidy; Line: store
  Turns; Turn; poke; otherwise: resource; side_by_side; Wire; Passage; carry; cross: net; WholeFile; Asker; asked; Answering; remake; Tally; NameMemory
  who_asks; may_touch; ClusterCall; is_over; gone; kept; held
""".split("\n"):
    for entry in filter(None, (part.strip() for part in line.split(";"))):
        names, _, modules = entry.partition(":")
        for name in names.split():
            WHOLE[name] = set(modules.split())
# Names that users see: fields, settings, metrics.
PUBLIC = {"because": "api jobs gslb catalog resource", "least": "", "most": "", "least_left": "", "fast": "gslb", "slow": "gslb", "forgotten_at": "", "look_again": "",
          "memory": "gslb", "fit": "health api", "what": "", "trouble": ""}
# Phrases, as regular expressions without regard to case.
PHRASES = [r"(?:to|by|of|for|with|from|than) who\b(?! (?:is|was) )", r"whoever", r"whom", r"anew", r"in turn", r"all the same", r"so[- ]many(?:[- ]th)?", r"so long(?! as)",
           r"is another", r"is none", r"is away", r"at the server", r"lets? go", r"for want of", r"sets? (?:it|them|itself) aside|sets? aside", r"(?:its|their|whose) words?",
           r"looks?(?! up)", r"machines?(?!-readable)", r"way out", r"knocks?", r"the house", r"nobody"]

# Parts of the names of tests. "word" is a term of the shell there.
TEST_PARTS = PARTS - {"word"} | set("whoever whom nobody somebody everybody anybody anew".split())
TEST_NAME = re.compile(r"^(?:TYPED_)?(?:CO_)?(?:SERVER_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)", re.M)

TOKEN = re.compile(r"""(?P<comment>//[^\n]*|/\*.*?\*/)|R"(?P<mark>[^()\s\\]*)\((?:.*?)\)(?P=mark)"|(?P<string>"(?:\\.|[^"\\\n])*")|'(?:\\[^'\n]+|[^'\\\n])'"""
                   r"""|(?P<include>\#include[^\n]*)|(?P<identifier>[A-Za-z_]\w*)""", re.S)
STRING = re.compile(TOKEN.pattern.rsplit("|(?P<identifier>", 1)[0], re.S)
PHRASE = re.compile(r"(?i)\b(?:" + "|".join(PHRASES) + r")\b")
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
IS_NAME = re.compile(r"[a-z][a-z0-9]*(?:[_.-][a-z0-9]+)*\Z")
memo = {}


def in_identifier(name, module):
    """The banned word in an identifier, or None."""
    if (name, module) not in memo:
        parts = [part.lower() for part in WORDS.findall(name)]
        bad = next((part for part in parts if part in PARTS), None)
        if bad is None and len(parts) > 1 and parts[0] in FIRST_PARTS:
            bad = parts[0] + "_"
        if bad is None and name in WHOLE and (not WHOLE[name] or module in WHOLE[name]):
            bad = name
        memo[(name, module)] = bad
    return memo[(name, module)]


def in_name(name, module):
    """The same for a string literal that is a name."""
    if name in PUBLIC and (not PUBLIC[name] or module in PUBLIC[name].split()):
        return name
    parts = re.split(r"[_.-]", name)
    return next((part for part in parts if part in PARTS), parts[0] + "_" if len(parts) > 1 and parts[0] in FIRST_PARTS else None)


def is_test(file):
    return re.search(r"_test\.|_test\b|testing|_for_tests|_fixture|conformance_|fake_|recorded_answers", file.name) is not None


def in_test_names(text):
    """Yields (word, position) for each banned word in the name of a suite or test."""
    for test in TEST_NAME.finditer(text):
        for name in test.groups():
            for part in WORDS.findall(name):
                if part.lower() in TEST_PARTS:
                    yield part.lower(), test.start()


def places(source=TREE / "src"):
    """Yields (class, word, file, line number) for each offender."""
    for file in sorted(source.rglob("*")):
        header = file.suffix == ".h"
        if file.name.endswith("_test.cpp"):
            text = file.read_text()
            yield from (("test", word, file, text.count("\n", 0, at) + 1) for word, at in in_test_names(text))
        if not header and (file.suffix != ".cpp" or is_test(file)):
            continue
        module, text = file.relative_to(source).parts[0], file.read_text()
        for token in (TOKEN if header else STRING).finditer(text):
            kind = token.lastgroup
            if kind == "identifier":
                word = in_identifier(token[0], module)
                found = [("identifier", word)] if word else ()
            elif kind == "string" and not is_test(file):
                if text.endswith(".renamed_from(", 0, token.start()) or re.search(r"_migration\.|\bmigrations\.", file.name):
                    continue  # the name of an earlier version
                inside = token[0][1:-1]
                if " " in inside:
                    found = [("text", match[0].lower()) for match in PHRASE.finditer(inside)]
                else:
                    word = in_name(inside.lstrip("-"), module) if IS_NAME.match(inside.lstrip("-")) else None
                    found = [("name", word)] if word else ()
            elif kind == "comment" and header:
                found = [("text", match[0].lower()) for match in PHRASE.finditer(token[0])]
            else:
                continue
            for how, word in found:
                if word.startswith("machine") and (module == "fleet" or file.name.startswith("fleet_")):
                    continue  # the kind Machine is of this domain
                yield how, word, file, text.count("\n", 0, token.start()) + 1


def read_known():
    known = collections.Counter()
    for line in KNOWN.read_text().splitlines():
        if line and not line.startswith("#"):
            module, how, number, word = line.split(None, 3)
            known[(module, how, word)] = int(number)
    return known


def write_known(known):
    lines = [f"{module} {how} {number} {word}" for (module, how, word), number in sorted(known.items()) if number > 0]
    KNOWN.write_text("# module, class, number, word: written by tools/check_words.py --update, and only ever shorter\n" + "".join(line + "\n" for line in lines))


def main(arguments):
    found = collections.defaultdict(list)
    for how, word, file, line in places():
        found[(file.relative_to(TREE / "src").parts[0], how, word)].append(f"{file.relative_to(TREE)}:{line}")
    if arguments[:1] == ["--show"] and len(arguments) == 2:
        for key, where in sorted(found.items()):
            if key[2] == arguments[1]:
                print("\n".join(f"{place}: {key[1]} \"{key[2]}\"" for place in where))
        return 0
    if arguments not in ([], ["--update"]):
        print(__doc__)
        return 2
    counts = collections.Counter({key: len(where) for key, where in found.items()})
    if arguments and not KNOWN.exists():
        write_known(counts)
        print(f"{KNOWN.relative_to(TREE)} has {len(counts)} lines")
        return 0
    known = read_known()
    more = {key: number for key, number in counts.items() if number > known[key]}
    fewer = {key: number for key, number in known.items() if counts[key] < number}
    for key in sorted(more):
        print(f"{key[0]}: {key[1]} \"{key[2]}\" {more[key]} times, known are {known[key]}; docs/glossary.md has the word to use. It is in:")
        print("\n".join(f"  {place}" for place in found[key][:20]))
    if arguments:
        write_known({key: min(number, counts[key]) for key, number in known.items()})
        print(f"{len(fewer)} lines of {KNOWN.relative_to(TREE)} are smaller or gone")
    elif fewer:
        print("\n".join(f"{key[0]}: {key[1]} \"{key[2]}\" {counts[key]} times, known are {number}" for key, number in sorted(fewer.items())[:40]))
        print(f"{len(fewer)} known offenders are fewer: run tools/check_words.py --update")
    if not more and not fewer:
        print(f"no new words; {sum(known.values())} known offenders are left" if known else "every word is of the glossary")
    return 1 if more or (fewer and not arguments) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
