"""XLA's own profile of each call, with the ONNX nodes of its instructions."""

import re
import tempfile
from pathlib import Path

import jax

from frames import Refused
from programs import Program


class Profiler:
    def __init__(self, session):
        self.session, self.folder = session, tempfile.TemporaryDirectory()
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        jax.profiler.start_trace(self.folder.name, profiler_options=options)

    def end(self):
        """The operators of each recorded call."""
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
        # Programs for caches of different lengths share their name and have the same instructions, so the last one is
        # enough.
        sources, costs = {}, {}
        for executable in self.session.executables.values():
            program = Program(executable.as_text())
            sources[program.name] = program.sources()
            costs[program.name] = program.costs(self.session.device.client)
        calls = sorted(runs.values(), key=lambda events: min(event["start"] for event in events))
        return [self.call(sorted(events, key=lambda event: event["start"]), sources, costs) for events in calls]

    def call(self, events, sources, costs):
        first = events[0]["start"]
        return {"operators": [
            {
                **self.source(event["name"], sources[event["program"]]),
                **costs[event["program"]].get(event["name"], {}),
                "kernel": event["name"],
                "start_ns": int(event["start"] - first),
                "duration_ns": int(event["duration"]),
                "thread": event["thread"],
            }
            for event in events
        ]}  # fmt: skip

    def source(self, name, sources):
        """The node of an instruction. An instruction without a node has XLA's name."""
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
        program = stats.get("hlo_module")
        if program in ("jit_forward", "jit_prefill", "jit_step") and "hlo_op" in stats:
            times = {"start": event.start_ns, "duration": event.duration_ns}
            found.append({"run": stats["run_id"], "program": program, "name": stats["hlo_op"], **times})
    return sorted(found, key=lambda event: (event["start"], -event["duration"]))


def without_inner_time(events):
    """Subtracts the time of inner instructions from the instruction around them."""
    open_events = []
    for event in events:
        end = event["start"] + event["duration"]
        while open_events and open_events[-1][1] <= event["start"]:
            open_events.pop()
        if open_events:
            open_events[-1][0]["duration"] -= event["duration"]
        open_events.append((event, end))
    return events

