"""What XLA computes in each call: its own profile, and the ONNX nodes that its instructions come from."""

import re
import tempfile
from pathlib import Path

import jax

from frames import Refused

# A fusion is called after what takes the most of its time.
PRODUCTS = ("dot", "convolution")


class Profiler:
    def __init__(self, session):
        self.session, self.folder = session, tempfile.TemporaryDirectory()
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        jax.profiler.start_trace(self.folder.name, profiler_options=options)

    def end(self):
        """The operators of each call since the beginning."""
        jax.profiler.stop_trace()
        files = list(Path(self.folder.name).rglob("*.xplane.pb"))
        if len(files) != 1:
            raise Refused("failed", f"XLA has written {len(files)} profiles")
        runs, threads = {}, {}
        for line in (line for plane in jax.profiler.ProfileData.from_file(str(files[0])).planes for line in plane.lines):
            thread = threads.setdefault(line.name, len(threads))
            for event in without_inner_time(instructions_of(line)):
                runs.setdefault(event["run"], []).append({**event, "thread": thread})
        self.folder.cleanup()
        sources = {}
        for executable in self.session.executables.values():
            sources.update(sources_of(executable.as_text()))
        calls = sorted(runs.values(), key=lambda events: min(event["start"] for event in events))
        return [self.call(sorted(events, key=lambda event: event["start"]), sources) for events in calls]

    def call(self, events, sources):
        first = events[0]["start"]
        return {"operators": [
            {
                **self.source(event["name"], sources),
                "kernel": event["name"],
                "start_ns": int(event["start"] - first),
                "duration_ns": int(event["duration"]),
                "thread": event["thread"],
            }
            for event in events
        ]}  # fmt: skip

    def source(self, name, sources):
        """The node of an instruction; XLA's own are called as it calls them."""
        nodes = [self.session.graphs[part].nodes[number] for part, number in sources.get(name, [])]
        if not nodes:
            return {"node": "", "operator": re.sub(r"[.\d]+$", "", name)}
        operators = sorted({node.operator.removeprefix("turned ") for node in nodes})
        if len(nodes) == 1:
            return {"node": nodes[0].name, "operator": operators[0]}
        return {"node": "", "operator": f"{len(nodes)} fused {', '.join(operators)}"}


def instructions_of(line):
    """The instructions of the session's programs, in the order in which they began."""
    found = []
    for event in line.events:
        stats = dict(event.stats)
        if stats.get("hlo_module") in ("jit_forward", "jit_prefill", "jit_step") and "hlo_op" in stats:
            found.append({"run": stats["run_id"], "name": stats["hlo_op"], "start": event.start_ns, "duration": event.duration_ns})
    return sorted(found, key=lambda event: (event["start"], -event["duration"]))


def without_inner_time(events):
    """Takes the time of instructions within another one from it."""
    open_events = []
    for event in events:
        end = event["start"] + event["duration"]
        while open_events and open_events[-1][1] <= event["start"]:
            open_events.pop()
        if open_events:
            open_events[-1][0]["duration"] -= event["duration"]
        open_events.append((event, end))
    return events


def sources_of(text):
    """For the instructions of a program: the parts of the model and the numbers of the nodes that they come from, each once."""
    computations, current, calls = {}, [], {}
    for line in text.splitlines():
        if begin := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line):
            current = computations.setdefault(begin[1], [])
        elif found := re.match(r"\s+(?:ROOT )?%?([\w.-]+) = .*? ([a-z][\w-]*)\(", line):
            scope = re.search(r'op_name="[^"]*?part=(\w+)/onnx(\d+)/', line)
            current.append((found[1], found[2], scope and (scope[1], int(scope[2]))))
            if called := re.search(r"(?:calls|to_apply)=%?([\w.-]+)", line):
                calls[found[1]] = called[1]
    sources = {}
    for name, _, own in (instruction for instructions in computations.values() for instruction in instructions):
        inner = computations.get(calls.get(name), [])
        products = [scope for _, opcode, scope in inner if opcode in PRODUCTS and scope]
        others = [scope for _, _, scope in reversed(inner) if scope]
        sources[name] = list(dict.fromkeys(products)) or [own for own in (own, *others) if own][:1]
    return sources
