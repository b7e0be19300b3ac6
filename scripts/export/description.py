"""Writes `model.toml` and `weights.toml`."""

import json

from entry import Entry, Generative, Port
from layout import Layout


def _value(value) -> str:
    """A TOML value; JSON's strings, integers and arrays are TOML's too."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def port_table(kind: str, port: Port) -> str:
    text = f'\n[[{kind}]]\nname = "{port.name}"\ndtype = "{port.dtype}"\nshape = {_value(port.shape)}\n'
    for key in ("below", "constant"):
        if (value := getattr(port, key)) is not None:
            text += f"{key} = {value}\n"
    return text


def _head(entry: Entry | Generative, parameters: int, extra: dict) -> str:
    fields = {
        "family": entry.family,
        "modality": entry.modality,
        "source": entry.source,
        "license": entry.license,
        "parameters": parameters,
        **({"sequence_lengths": entry.sequence_lengths} if entry.sequence_lengths else {}),
        **extra,
    }
    text = "".join(f"{key} = {_value(value)}\n" for key, value in fields.items())
    return text + "".join(port_table("inputs", port) for port in entry.inputs)


def model_toml(entry: Entry, parameters: int, tolerance: str, extra: dict, variants: list[dict]) -> str:
    text = _head(entry, parameters, extra) + "".join(port_table("outputs", port) for port in entry.outputs)
    text += f"\n[tolerance]\nf32 = {tolerance}\n"
    text += "".join(_variant(table) for table in variants)
    return text + _quantized_variants() if entry.quantized else text


def _variant(table: dict) -> str:
    # A tolerance is a string that is already a TOML number.
    lines = (f"{key} = {value if key == 'tolerance' else _value(value)}\n" for key, value in table.items())
    return "\n[[variants]]\n" + "".join(lines)


def _quantized_variants() -> str:
    ways = ("dynamic", "static")
    return "".join(f'\n[[variants]]\nname = "int8-{way}"\ndtype = "i8"\nquantize = "{way}"\n' for way in ways)


def _ports(key: str, ports: list[Port]) -> str:
    lines = [f'  {{ name = "{p.name}", dtype = "{p.dtype}", shape = {_value(p.shape)} }},\n' for p in ports]
    return f"{key} = [\n" + "".join(lines) + "]\n"


def generative_toml(entry: Generative, parameters: int, tolerance: str, extra: dict) -> str:
    text = _head(entry, parameters, extra)
    text += f'\n[generation]\ntokens = "{entry.tokens}"\nprefix_positions = {entry.prefix_positions}\n'
    text += f"once = {_value(list(entry.once))}\n" if entry.once else ""
    names = [part.name for part in entry.parts]
    phases = {"encoder": names[:-1], "prefill": names, "decode": names[-1:]}
    for phase, parts in phases.items():
        if parts:
            text += f'\n[[phases]]\nname = "{phase}"\nparts = {_value(parts)}\n'
            text += _ports("outputs", entry.encoded) if phase == "encoder" else ""
    for part in entry.parts:
        text += f'\n[[parts]]\nname = "{part.name}"\n' + _ports("inputs", part.inputs) + _ports("outputs", part.outputs)
    return text + f"\n[tolerance]\nf32 = {tolerance}\n"


def weights_toml(entry: Entry | Generative, layout: Layout, seed: int, sha256: str) -> str:
    text = f"seed = {seed}\nsha256 = \"{sha256}\"\n" if entry.init else ""
    text += f"header_bytes = {layout.header_bytes}\ntensors = [\n"
    for name, shape in layout.shapes.items():
        fields = {"name": name, "shape": shape, **(entry.init(name, shape) if entry.init else {})}
        text += "  { " + ", ".join(f"{key} = {_value(value)}" for key, value in fields.items()) + " },\n"
    return text + "]\n"
