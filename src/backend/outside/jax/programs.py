"""XLA's compiled programs: their instructions, the ONNX nodes of the instructions, and their costs according to XLA."""

import re
from dataclasses import dataclass

try:
    from jaxlib._hlo import hlo_module_from_text
    from jaxlib._jax import hlo_module_cost_analysis
except ImportError:
    # Other versions of jaxlib lack these; there are times without costs.
    hlo_module_from_text = None

# A fusion is named after its products, which take most of its time.
PRODUCTS = ("dot", "convolution")
# These only name values, or stand for the instructions of other computations.
WITHOUT_COST = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call")

INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.-]+) = (\((?:[^()]|\([^()]*\))*\)|\S+) ([a-z][\w-]*)\((.*?)\)(.*)")
CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.-]+)")


@dataclass
class Instruction:
    name: str
    type: str
    opcode: str
    operands: str
    attributes: str

    def scope(self):
        """The part of the model and the number of the node that the instruction comes from."""
        found = re.search(r'op_name="[^"]*?part=(\w+)/onnx(\d+)/', self.attributes)
        return found and (found[1], int(found[2]))

    def called(self):
        found = CALLED.search(self.attributes)
        return found and found[1]


class Program:
    def __init__(self, text):
        self.name = re.match(r"HloModule ([\w.-]+)", text)[1]
        self.texts, self.computations = {}, {}
        for found in re.finditer(r"^(?:ENTRY )?%?([\w.-]+) \(.*?^\}", text, re.MULTILINE | re.DOTALL):
            self.texts[found[1]] = re.sub(r", metadata=\{[^}]*\}", "", found[0])
            instructions = map(INSTRUCTION.fullmatch, found[0].splitlines())
            self.computations[found[1]] = [Instruction(*fields.groups()) for fields in instructions if fields]

    def instructions(self):
        return [instruction for instructions in self.computations.values() for instruction in instructions]

    def sources(self):
        """For each instruction, the distinct nodes that it comes from, as parts of the model and numbers of nodes."""
        sources = {}
        for instruction in self.instructions():
            inner = self.computations.get(instruction.called(), [])
            scopes = [(within.opcode, scope) for within in inner if (scope := within.scope())]
            products = [scope for opcode, scope in scopes if opcode in PRODUCTS]
            others = [scope for _, scope in reversed(scopes)]
            own = instruction.scope()
            sources[instruction.name] = list(dict.fromkeys(products)) or [scope for scope in (own, *others) if scope][:1]
        return sources

    def costs(self, client):
        """For each instruction, its operations and the bytes that it reads and writes, by XLA's cost analysis."""
        if hlo_module_from_text is None:
            return {}
        within_others = {instruction.called() for instruction in self.instructions() if instruction.opcode != "call"}
        costs = {}
        for name, instructions in self.computations.items():
            if name in within_others:
                continue
            types = {instruction.name: instruction.type for instruction in instructions}
            for instruction in instructions:
                if instruction.opcode not in WITHOUT_COST and (cost := self.cost(instruction, types, client)):
                    costs[instruction.name] = cost
        return costs

    def cost(self, instruction, types, client):
        """The cost of an instruction. It is made into a program, because XLA only counts whole programs."""
        taken = [types.get(name) for name in re.findall(r"%([\w.-]+)", instruction.operands)]
        if None in taken:
            return None
        parameters = [f"  %operand.{place} = {kind} parameter({place})" for place, kind in enumerate(taken)]
        operands = ", ".join(f"%operand.{place}" for place in range(len(taken)))
        attributes = re.sub(r", (?:metadata|control-predecessors)=\{[^}]*\}", "", instruction.attributes)
        root = f"  ROOT %{instruction.name} = {instruction.type} {instruction.opcode}({operands}){attributes}"
        signature = ", ".join(f"operand.{place}: {kind}" for place, kind in enumerate(taken))
        entry = "\n".join([f"ENTRY %whole ({signature}) -> {instruction.type} {{", *parameters, root, "}"])
        text = "\n\n".join(["HloModule one", *self.called_by(instruction), entry])
        try:
            cost = hlo_module_cost_analysis(client, hlo_module_from_text(text))
        except (RuntimeError, ValueError):
            return None
        flops, moved = cost.get("flops", 0), cost.get("bytes accessed", 0)
        # For unknown instructions, such as a call into a library, XLA returns -1.
        return {"flops": int(flops), "bytes": int(moved)} if flops >= 0 and moved >= 0 else None

    def called_by(self, instruction):
        """The texts of the computations that the instruction needs, the innermost first."""
        name = instruction.called()
        if name not in self.texts:
            return []
        inner = [text for within in self.computations[name] for text in self.called_by(within)]
        return [*dict.fromkeys(inner), self.texts[name]]
