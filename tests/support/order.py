"""The order of the house: layers, circles, folders, names and walks, read from the sources and the objects of a build.

    python3 tests/support/order.py              checks; test_order.sh calls it
    python3 tests/support/order.py --report     lists all that is out of order, as sections of lines that sort well
    python3 tests/support/order.py --report SECTION...   only these, which MOST names
    python3 tests/support/order.py --circle FILE         an order of the files of the circle of FILE, and what runs up

BUILD names another build than build/release. Calls are symbols that one object takes from another, functions and data,
so no declaration hides them. Python 3.9 and nm are enough.
"""
import collections
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

# The rooms, lowest first: a room, then those directly below it. What is below these is below it too. A room is a folder
# of src; a folder in it that has no line of its own belongs to it.
ROOMS = """
base:
config: base
drift: base
track: base
graph: base
ops: graph
passes: ops
device: base
store: device
comm: base
process: base
exec: passes store comm
nn: config exec
optim: nn
checkpoint: store comm
formats: base
remote: base
formats/image: formats
formats/shards: formats
text: base
text/unicode: text
text/tokenizer: text/unicode formats
text/pattern: text
text/template: text/tokenizer text/pattern
text/chat: text/template
data: config text/chat formats/image formats/shards remote
data/transform: data
data/loader: data/transform
data/corpus: data/loader
data/pack: data/corpus
data/table: data/corpus
data/image: data/loader
data/series: data/table
data/nodes: data/loader
export: optim data/table data/image data/series checkpoint
launch: checkpoint process
tasks: export drift data/nodes data/pack
schema: tasks
trainer: schema track
trainer/state: trainer
trainer/graphs: trainer/state
trainer/exchange: trainer/graphs
trainer/probes: trainer/exchange
trainer/pipeline: trainer/probes
trainer/offload: trainer/pipeline
trainer/step: trainer/offload
trainer/plan: trainer/step
job: trainer/plan
infer: schema track
evaluate: infer
reinforce: job infer process
plan: reinforce
plot: plan
assistant: evaluate plot
compress: plan
serve: compress evaluate
serve/base: serve
serve/protocol: serve/base
serve/http: serve/base
serve/telemetry: serve/protocol
serve/link/core: serve/telemetry
serve/link/redis: serve/link/core
serve/link: serve/link/redis
serve/broker: serve/link
serve/worker: serve/link
serve/features: serve/link/redis
serve/gateway/core: serve/http serve/features serve/link
serve/gateway/tasks: serve/gateway/core
serve/gateway/openai: serve/gateway/tasks
serve/gateway: serve/gateway/openai
serve/rollout: serve/link
serve/supervisor: serve/gateway serve/rollout process
serve/client: serve/http serve/protocol
cli/base: assistant serve/supervisor serve/broker serve/worker serve/client launch
cli/train: cli/base
cli/evaluate: cli/train
cli/generate: cli/evaluate
cli/data: cli/generate
cli/model: cli/data
cli/runs: cli/model
cli/serve: cli/runs
cli/bench: cli/serve
cli/plan: cli/bench
cli: cli/plan
"""

# Public headers without functions, and the room of each. The others belong to the room that defines their functions.
PLAIN_HEADERS = {"exit": "base", "dtype": "base", "shape": "base", "formats": "formats", "train_events": "tasks"}

# Headers that the build makes.
MADE = ("revision.h", "redis_broker_script.h", "serve_page.h")

# The most that there may be of each. What is not yet in order has the number of today, which only falls: who lowers the
# count lowers the number here.
MOST = {
    "arrows": 0,  # pairs of files between which a call runs up, or aside
    "includes": 0,  # includes that point up, or aside
    "headers": 2,  # public headers whose functions several rooms define
    "circles": 6,  # files of the largest circle of calls
    "circled": 0,  # files in circles of more than 6
    "folders": 40,  # .c and .h files that lie directly in the largest folder
    "crowded": 0,  # folders with more than 40
    "types": 0,  # names of types that are defined more than once
    "shared": 0,  # names that a function and a type share
    "names": 0,  # internal names without the name of their room or folder
    "files": 0,  # names that two files share
    "comments": 0,  # names in comments that do not exist
    "walks": 0,  # rows of the walks in docs/architecture.md that are not true
}
LARGEST = {"circles": 6, "folders": 40}

SECTIONS = tuple(MOST)
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build/release")


# ---- rooms ----


def read_rooms():
    """The set of rooms below each room."""
    below = {}
    for line in ROOMS.split("\n"):
        if line:
            room, _, direct = line.partition(":")
            below[room] = set(direct.split())
            for other in direct.split():
                below[room] |= below[other]
    return below


BELOW = read_rooms()


def room_of(path):
    """The room of a file of src: the longest folder of its path that is one."""
    parts = path.split("/")[1:-1]
    while parts and "/".join(parts) not in BELOW:
        parts.pop()
    return "/".join(parts)


def may_use(room, other):
    return room == other or other in BELOW[room]


def unmatched_folders():
    """Lines of ROOMS and folders of src that do not match. Where one folder of a room is a room, all are."""
    found = [f"src/{room}: a room that is not there" for room in sorted(BELOW) if not (ROOT / "src" / room).is_dir()]
    for folder in sorted({os.path.dirname(path) for path in sources("src")}):
        room = room_of(folder + "/")
        parted = any(other.startswith(room + "/") for other in BELOW)
        if not room or parted and folder != "src/" + room:
            found.append(f"{folder}: a folder that ROOMS does not name")
    return found


# ---- sources ----


def sources(*folders, ends=(".c", ".h", ".inc")):
    found = []
    for folder in folders:
        for f in (ROOT / folder).rglob("*"):
            if f.suffix in ends and f.is_file() and ".venv" not in f.parts:
                found.append(str(f.relative_to(ROOT)))
    return sorted(found)


COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]*)"', re.M)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.M)
texts = {}


def text_of(path):
    if path not in texts:
        texts[path] = (ROOT / path).read_text(encoding="utf-8")
    return texts[path]


def code_of(path):
    """A source without comments, strings and directives."""
    text = text_of(path)
    pieces = re.compile(COMMENT.pattern + "|" + STRING.pattern, re.S)
    text = pieces.sub(lambda m: " " if m.group().startswith("/") else '""', text)
    # What C++ is told about a header is no body.
    return re.sub(r'\bextern\s*""\s*\{', " ", DIRECTIVE.sub(" ", text))


def declarations(code):
    """What stands at the outermost level: pairs of the text before a body or semicolon, and the body or None."""
    start, depth, opened = 0, 0, 0
    head = None
    for m in re.finditer(r"[{};]", code):
        if m.group() == "{":
            if depth == 0 and head is None:
                head, opened = code[start : m.start()], m.start()
            depth += 1
        elif m.group() == "}":
            depth -= 1
            if depth == 0 and is_function(head or ""):
                yield head.strip(), code[opened : m.end()]
                start, head = m.end(), None
        elif depth == 0:
            if head is None:
                yield code[start : m.start()].strip(), None
            else:
                yield code[start : m.start()].strip(), code[opened : m.start()]
            start, head = m.end(), None


def is_function(head):
    return "(" in head and "=" not in head and not head.strip().startswith("typedef")


TAG = re.compile(r"\b(?:struct|union|enum)\s+(\w+)\s*\{")
ALIAS = re.compile(r"\btypedef\s+(?:struct|union|enum)\s+(\w+)\s+(\w+)\s*$")


def read_names(path):
    """The types and the functions that a source defines or declares: names, sorted by what they are."""
    types, functions, declared = [], [], []
    code = code_of(path)
    types += TAG.findall(code)
    for head, body in declarations(code):
        head = " ".join(re.sub(r"__attribute__\s*\(\(.*?\)\)|_Noreturn|_Static_assert", " ", head).split())
        if head.startswith("typedef"):
            alias = ALIAS.search(head)
            if alias and alias.group(1) == alias.group(2):
                continue
            flat = re.sub(r"\{.*\}", " ", head, flags=re.S)
            name = re.search(r"\(\s*\*+\s*(\w+)\s*\)\s*\(", flat) or re.search(r"(\w+)\s*\(", flat)
            name = name or re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", flat)
            tag = TAG.search(head)
            if name and not (tag and tag.group(1) == name.group(1)):
                types.append(name.group(1))
        elif is_function(head):
            # A name in parentheses is none of the macro that is called so.
            name = re.search(r"\w\s*\(\s*(\w+)\s*\)\s*\(", head) or re.search(r"(\w+)\s*\((?!\s*\*)", head)
            if name and body is not None:
                functions.append(name.group(1))
            elif name and " " in head[: name.start()] + " ":
                declared.append(name.group(1))
    return types, functions, declared


# ---- objects ----


def objects():
    """The objects of the library and the command line: path of the object, source. Levels of kernels are several."""
    commands = BUILD / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"order: there is no {commands}; configure and build the release, or name a build with BUILD=FOLDER")
    found = {}
    for entry in json.loads(commands.read_text()):
        source = os.path.relpath(entry["file"], ROOT)
        if not source.startswith("src/"):
            continue
        words = shlex.split(entry["command"])
        path = pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]
        if path.exists():
            found[str(path)] = source
        elif "/kernels_" not in str(path):
            sys.exit(f"order: {path} is not built; build the release first")
    return found


def read_symbols():
    """Where each symbol is defined, and the symbols that each source takes from others."""
    found = objects()
    listing = subprocess.run(
        ["nm", "-A", "-P"] + list(found), check=True, stdout=subprocess.PIPE, universal_newlines=True
    ).stdout
    defined, wanted = {}, collections.defaultdict(set)
    for line in listing.split("\n"):
        path, _, rest = line.partition(": ")
        words = rest.split()
        if len(words) < 2:
            continue
        if words[1] == "U":
            wanted[found[path]].add(words[0])
        elif words[1].isupper() or words[1] in "vw":
            defined[words[0]] = found[path]
    return defined, wanted


class Program:
    """The calls between sources: for each pair of files, the symbols."""

    def __init__(self):
        self.defined, wanted = read_symbols()
        self.calls = collections.defaultdict(dict)
        for source, names in wanted.items():
            for name in names:
                to = self.defined.get(name)
                if to and to != source and name != "main":
                    self.calls[source].setdefault(to, set()).add(name)
        self.files = sorted(set(self.defined.values()) | set(wanted))
        self.header_rooms, self.mixed = self.read_headers()

    def read_headers(self):
        """The room of each public header, and those that belong to several."""
        rooms, mixed = {}, []
        for path in sources("include"):
            name = pathlib.Path(path).stem
            if name == "banyan":
                continue
            count = collections.Counter()
            where = collections.defaultdict(list)
            for function in read_names(path)[2]:
                if function in self.defined:
                    # A public header is that of the whole of a room that has others in it.
                    room = room_of(self.defined[function]).split("/")[0]
                    count[room] += 1
                    where[room].append(function)
            if name in PLAIN_HEADERS:
                rooms[name] = PLAIN_HEADERS[name]
            elif count:
                rooms[name] = count.most_common(1)[0][0]
            else:
                mixed.append(f"{path}: no function of it is defined; PLAIN_HEADERS may say whose it is")
            for room in sorted(where):
                if room != rooms.get(name):
                    mixed.append(f"{path} ({rooms[name]}): {room} defines {' '.join(sorted(where[room]))}")
        return rooms, mixed

    # ---- layers ----

    def arrows(self):
        found = []
        for source in self.files:
            for to, names in self.calls[source].items():
                if not may_use(room_of(source), room_of(to)):
                    found.append(
                        f"{room_of(source)} -> {room_of(to)}: {source} -> {to}: {' '.join(sorted(names))}"
                    )
        return sorted(found)

    def includes(self):
        found = []
        for path in sources("src", "include"):
            stem = pathlib.Path(path).stem
            room = room_of(path) if path.startswith("src/") else self.header_rooms.get(stem)
            for include in INCLUDE.findall(text_of(path)):
                problem = None if path == "include/banyan/banyan.h" else self.check_include(path, room, include)
                if problem:
                    found.append(f"{path}: {problem}")
        for path in sources("examples"):
            for include in INCLUDE.findall(text_of(path)):
                if not include.startswith("banyan/") or not (ROOT / "include" / include).exists():
                    found.append(f'{path}: "{include}" is no public header')
        return sorted(found)

    def check_include(self, path, room, include):
        in_cli = path.startswith("src/cli/")
        if include in MADE:
            return None
        if include.startswith("banyan/"):
            name = pathlib.Path(include).stem
            if not (ROOT / "include" / include).exists():
                return f'there is no "{include}"'
            if name == "banyan":
                return None if in_cli else f'"{include}" has all rooms'
            other = self.header_rooms.get(name)
        elif in_cli:
            # The command line stands on public headers and its own alone.
            if not (ROOT / "src/cli" / include).exists():
                return f'"{include}" is neither public nor its own'
            other = room_of("src/cli/" + include)
        else:
            other = room_of("src/" + include) if (ROOT / "src" / include).exists() else None
            if other is None:
                return f'"{include}" is no path below src'
        if other is None or room is None or may_use(room, other):
            return None
        return f'{room} may not include "{include}" ({other})'

    # ---- circles ----

    def circles(self):
        """Sets of files that call each other, largest first."""
        return sorted(strong_components(self.files, self.calls), key=lambda c: (-len(c), c))

    def circle_lines(self):
        return [f"{len(c)} files: {' '.join(c)}" for c in self.circles() if len(c) > 1]

    def print_circle(self, circle):
        """The files of a circle, users first, in an order in which few symbols are taken from files before."""
        order = order_files(circle, self.calls)
        place = {f: i for i, f in enumerate(order)}
        print(f"circle of {len(circle)} files, users first; ^ is taken from a file before:")
        for f in order:
            print(f"  {f}")
            for to in order[: place[f]]:
                if to in self.calls[f]:
                    print(f"      ^ {to}: {' '.join(sorted(self.calls[f][to]))}")

    # ---- names ----

    def names(self):
        """Internal names, of symbols and of types, that carry no folder of their path."""
        found = set()
        for name, source in self.defined.items():
            if name.startswith("by__") and not carries_room(name, source):
                found.add(f"{room_of(source)}: {source}: {name}")
        for path in sources("src"):
            types = read_names(path)[0]
            for name in types:
                if name.startswith("by__") and not carries_room(name, path):
                    found.add(f"{room_of(path)}: {path}: {name}")
        return sorted(found)


def carries_room(name, path):
    """Whether a name begins with a folder of its path, or with what the folder holds many of. Names without a room are
    those of base, which every room uses."""
    folders = path.split("/")[1:-1]
    rest = name[len("by__") :] + "_"
    singles = [re.sub(r"(?<=ss)es$|s$", "", folder) for folder in folders]
    return folders[0] == "base" or rest.startswith(tuple(word + "_" for word in folders + singles))


def strong_components(nodes, edges):
    """Tarjan's, without recursion."""
    index, low, on, stack, found = {}, {}, set(), [], []
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, children = work[-1]
            for child in children:
                if child not in index:
                    index[child] = low[child] = len(index)
                    stack.append(child)
                    on.add(child)
                    work.append((child, iter(sorted(edges[child]))))
                    break
                if child in on:
                    low[node] = min(low[node], index[child])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on.discard(component[-1])
                    found.append(sorted(component))
    return found


def order_files(files, edges):
    """Users first: moves each file to where the fewest symbols run up, until none is better."""
    weight = {f: {to: len(n) for to, n in edges[f].items() if to in files} for f in files}
    order = sorted(files, key=lambda f: (len([g for g in files if f in weight[g]]) - len(weight[f]), f))
    better = True
    while better:
        better = False
        for f in list(order):
            at = order.index(f)
            rest = order[:at] + order[at + 1 :]
            # The cost of each place: what f takes from those before it, and what those behind it take from f.
            cost = sum(weight[g].get(f, 0) for g in rest)
            costs = [cost]
            for g in rest:
                cost += weight[f].get(g, 0) - weight[g].get(f, 0)
                costs.append(cost)
            best = min(range(len(costs)), key=costs.__getitem__)
            if costs[best] < costs[at]:
                order = rest[:best] + [f] + rest[best:]
                better = True
    return order


# ---- folders, types, files, comments ----


# Programs name public headers without a folder, and each is one subject.
FLAT_FOLDERS = ("include/banyan",)


def folder_sizes():
    count = collections.Counter(
        str(pathlib.Path(f).parent) for f in sources("src", "include", "tests", "bench", "examples", ends=(".c", ".h"))
    )
    return sorted(
        (item for item in count.items() if item[0] not in FLAT_FOLDERS), key=lambda item: (-item[1], item[0])
    )


def type_lines():
    """Types that are defined twice, and functions that share the name of a type."""
    types, functions = collections.defaultdict(list), collections.defaultdict(set)
    for path in sources("include", "src"):
        own_types, own_functions, declared = read_names(path)
        for name in own_types:
            types[name].append(path)
        for name in own_functions + declared:
            functions[name].add(path)
    twice = [f"{name}: {' '.join(paths)}" for name, paths in sorted(types.items()) if len(paths) > 1]
    shared = [
        f"{name}: type in {' '.join(types[name])}, function in {' '.join(sorted(functions[name]))}"
        for name in sorted(types)
        if name in functions
    ]
    return twice, shared


def file_lines():
    """A header of include/banyan may share its name with the room's own (graph.h); nothing else may."""
    paths = collections.defaultdict(list)
    for path in sources("src", "tests", "bench", "examples", ends=(".c", ".h", ".py", ".sh")):
        paths[path.split("/")[-1]].append(path)
    return [f"{name}: {' '.join(found)}" for name, found in sorted(paths.items()) if len(found) > 1]


def comment_lines():
    """Internal names and names of C files in comments exist; NAME stands for any, and what ends in an underscore for
    all that begin so. A name with a path may be another project's."""
    paths = sources("include", "src", ends=(".c", ".h"))
    there = {path.split("/")[-1] for path in paths}
    for path in paths:
        there.update(re.findall(r"\bby__\w+", COMMENT.sub(" ", text_of(path))))
    found = []
    for path in paths:
        for words in COMMENT.findall(text_of(path)):
            for name in re.findall(r"\bby__[a-z0-9_]*[a-z0-9]\b|(?<![\w./-])[a-z0-9_]+\.c\b", words):
                if name not in there:
                    found.append(f"{path}: there is no {name}, which a comment names")
    return sorted(found)


# ---- walks ----

WALKS = "docs/architecture.md"
WALK_COUNT, STOPS_MOST = 4, 12
# Walks that come back: through functions that were not named before, though in files that were.
RETURNING = ("A request",)


class Walks:
    """The tables below "Walks": stops of a thing on its way, each a file, a function and what happens there. A stop calls
    the next one, through any number of functions, or all stops are called by the next one, until a row that begins with
    "through": what it names in backquotes, if anything, is in the code of both files."""

    def __init__(self, program):
        self.program = program
        self.bodies = {}  # for each file, the words in the bodies of its functions
        for path in sources("src", ends=(".c",)):
            found = self.bodies.setdefault(path, {})
            for head, body in declarations(code_of(path)):
                name = re.search(r"(\w+)\s*\(", head) if body is not None and is_function(head) else None
                if name:
                    found[name.group(1)] = set(re.findall(r"\b[a-z]\w*", body))

    def called(self, stop):
        """What a function calls, or gives to others to call."""
        path, function = stop
        for word in self.bodies[path][function]:
            other = self.program.defined.get(word)
            if word in self.bodies[path]:
                yield path, word
            elif other and word in self.program.calls[path].get(other, ()) and word in self.bodies.get(other, ()):
                yield other, word

    def reaches(self, stop, wanted):
        seen, left = {stop}, [stop]
        while left:
            for other in self.called(left.pop()):
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        return wanted in seen

    def lines(self):
        section = text_of(WALKS).split("\n## Walks\n", 1)[-1].split("\n## ", 1)[0]
        tables = re.findall(r"^(\w[^\n|]*):\n\n((?:\|[^\n]*\n)+)", section, re.M)
        found = [] if len(tables) == WALK_COUNT else [f"{WALKS}: {len(tables)} walks, not {WALK_COUNT}"]
        for title, table in tables:
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().split("\n")[2:]]
            found += [f"{WALKS}: {title}: {problem}" for problem in self.check(title, rows)]
        return found

    def check(self, title, rows):
        if not 1 < len(rows) <= STOPS_MOST:
            yield f"{len(rows)} stops, at most {STOPS_MOST}"
        stops = [(row[0].strip("`"), row[1].strip("`")) for row in rows]
        for i, stop in enumerate(stops):
            if stop[1] not in self.bodies.get(stop[0], ()):
                yield f"{stop[0]} defines no function {stop[1]}"
                return
            if stop in stops[:i]:
                yield f"{stop[1]} is there twice"
            if stop[0] in [path for path, _ in stops[:i]] and not title.startswith(RETURNING):
                yield f"it returns to {stop[0]}"
        up = None  # whether stops are called by the next ones, since the last hand-over
        for (before, stop), (_, _, what) in zip(zip(stops, stops[1:]), rows[1:]):
            if what.startswith("through "):
                up = None
                for name in re.findall(r"`(\w+)`", what.split(":")[0]):
                    for path in (before[0], stop[0]):
                        if not re.search(rf"\b{name}\b", code_of(path)):
                            yield f"{path} has no {name}, through which {before[1]} hands on to {stop[1]}"
                continue
            down = self.reaches(before, stop) and up is not True
            if not down and (up is False or not self.reaches(stop, before)):
                yield f"{before[1]} does not call {stop[1]}, and nothing says through what it hands on"
            up = not down


def read_all():
    """For each section, its lines and its figure."""
    program = Program()
    circles, folders = program.circle_lines(), folder_sizes()
    twice, shared = type_lines()
    lines = {
        "arrows": program.arrows(),
        "includes": program.includes(),
        "headers": program.mixed,
        "circles": circles,
        "circled": [f for c in program.circles() if len(c) > LARGEST["circles"] for f in c],
        "folders": [f"{count} files: {folder}" for folder, count in folders],
        "crowded": [folder for folder, count in folders if count > LARGEST["folders"]],
        "types": twice,
        "shared": shared,
        "names": program.names(),
        "files": file_lines(),
        "comments": comment_lines(),
        "walks": Walks(program).lines(),
    }
    figures = {section: len(found) for section, found in lines.items()}
    figures["circles"] = max(len(c) for c in program.circles())
    figures["folders"] = folders[0][1]
    return program, lines, figures


def main(arguments):
    program, lines, figures = read_all()
    if arguments[:1] == ["--circle"]:
        for circle in program.circles():
            if len(arguments) == 1 and len(circle) > 1 or set(arguments[1:]) & set(circle):
                program.print_circle(circle)
        return 0
    if arguments[:1] == ["--report"]:
        for section in arguments[1:] or SECTIONS:
            print(f"== {section}: {figures[section]}, at most {MOST[section]}")
            print("".join(line + "\n" for line in lines[section]), end="")
        return 0
    problems = unmatched_folders()
    print("".join(line + "\n" for line in problems), end="")
    for section in SECTIONS:
        if figures[section] > MOST[section]:
            problems.append(section)
            print(f"{section}: {figures[section]}, at most {MOST[section]} (order.py --report {section} has all)")
            print("".join(f"  {line}\n" for line in lines[section][:20]), end="")
        elif max(figures[section], LARGEST.get(section, 0)) < MOST[section]:
            print(f"{section}: {figures[section]}, fewer than {MOST[section]}: lower the number in order.py")
    print("no more is out of order than MOST allows" if not problems else f"{len(problems)} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
