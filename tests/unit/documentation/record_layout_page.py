"""The part of `docs/record-layout.md` that the table of records tells, as Markdown.

It is read from the source of `storage.records`, since neither the names of types nor docstrings of variables
are there at run time. `python -m tests.unit.documentation.record_layout_page` writes it into the page.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "record-layout.md"
BEGIN = "<!-- from the table of records: python -m tests.unit.documentation.record_layout_page -->\n"
END = "<!-- so far -->\n"
BY_HAND = ("special_codecs", "bucket_values", "queue_spec_values", "staged_values", "filter_log_entries")
"""The modules whose docstrings have layouts that rows of fields cannot say."""

_TYPES = {
    "U8": "u8",
    "U16": "u16",
    "U32": "u32",
    "U64": "u64",
    "I64": "i64",
    "Utf8": "Utf8",
    "VarBytes": "VarBytes",
    "TerminatedText": "TB",
    "TextRest": "raw",
    "BytesRest": "raw",
    "Digest": "8 bytes",
    "u8": "u8",
    "u32": "u32",
    "u64": "u64",
    "i64": "i64",
    "utf8": "Utf8",
    "terminated": "TB",
    "text_rest": "raw",
    "bytes_rest": "raw",
    "ranges": "Ranges",
    "table": "Table",
    "special_codecs.BINDING_DIGEST": "[16 bytes]",
}
_CODES = {"B": "u8", "Q": "u64"}
_CODECS = {"encode_block": "sequence block"}
_BELOW = "below"


class _Source:
    """The statements of `storage/records/__init__.py`."""

    def __init__(self) -> None:
        self.text = (ROOT / "storage" / "records" / "__init__.py").read_text("utf-8")
        body = ast.parse(self.text).body
        self.classes = {each.name: each for each in body if isinstance(each, ast.ClassDef)}
        self.values: dict[str, ast.expr] = {}
        self.docstrings: dict[str, str] = {}
        for statement, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                assert statement.value is not None
                self.values[name] = statement.value
                self.docstrings[name] = _text_of(following)

    def records(self) -> Iterator[tuple[str, ast.Call]]:
        for name, value in self.values.items():
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "Record":
                yield name, value

    def fields_of(self, class_name: str) -> list[tuple[str, ast.expr]]:
        """Names and annotations."""
        statements = self.classes[class_name].body
        return [
            (ast.unparse(each.target), each.annotation)
            for each in statements
            if isinstance(each, ast.AnnAssign)
        ]

    def codec(self, expression: ast.expr) -> str:
        """What a key or value holds."""
        if isinstance(expression, ast.Name) and expression.id in self.values:
            return self.codec(self.values[expression.id])
        if not isinstance(expression, ast.Call):
            return _BELOW
        match ast.unparse(expression.func), expression.args:
            case "no_key", []:
                return "–"
            case "key" | "value", [ast.Constant(value=str(name)), field]:
                return _joined(name, self.field(field))
            case "key_of" | "value_of", [ast.Name(id=name), *_]:
                return ", ".join(self.members(name))
            case "Codec", [ast.Name(id=name), *_]:
                return _CODECS.get(name, _BELOW)
        raise ValueError(f"not known on the page: {ast.unparse(expression)}")

    def members(self, class_name: str) -> Iterator[str]:
        flags: list[str] = []
        for name, annotation in [*self.fields_of(class_name), ("", None)]:
            spelled = "" if annotation is None else self.annotated(annotation)
            if spelled.startswith("0x"):
                flags.append(f"{spelled[2:]} {name}")
                continue
            if flags:
                yield f"flags u8 ({', '.join(flags)})"
                flags.clear()
            if name:
                yield _joined(name, spelled)

    def annotated(self, annotation: ast.expr) -> str:
        """The type of a field of a class: a name, or `Annotated[type, field]`."""
        match annotation:
            case ast.Subscript(slice=ast.Tuple(elts=[_, field])):
                return self.field(field)
        return self.field(annotation)

    def field(self, field: ast.expr) -> str:
        if not isinstance(field, ast.Call):
            return _TYPES[ast.unparse(field)]
        match ast.unparse(field.func), field.args:
            case "array", [elements]:
                return f"Array of {self.field(elements)}"
            case "group", [codec]:
                return f"({self.codec(codec)})"
            case "optional" | "added", [inner, *_]:
                spelled = self.field(inner)
                return f"[{spelled[1:-1] if spelled.startswith('(') else spelled}]"
            case "Packed", [ast.Constant(value=str(code)), *_]:
                return _CODES[code]
            case "Flag", [ast.Constant(value=int(bit))]:
                return f"0x{bit:02x}"
            case "checked_text", _:
                return "raw"
        raise ValueError(f"not known on the page: {ast.unparse(field)}")

    def meaning(self, name: str) -> str:
        """The first sentence of a record's docstring."""
        return " ".join(self.docstrings[name].split()).partition(". ")[0].rstrip(".") + "."

    def heading(self, line: int) -> str:
        """The comment that names the part of the table in which a line stands."""
        above = "\n".join(self.text.splitlines()[:line])
        return re.findall(r"^# (.+)$", above, re.MULTILINE)[-1]


def _text_of(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def _joined(name: str, spelled: str) -> str:
    """A field with its name, which stands inside the brackets of one that may be left out."""
    if spelled.startswith("["):
        return spelled if "," in spelled else f"[{name} {spelled[1:-1]}]"
    return f"{name} {spelled}"


def _by_hand(module: str) -> list[str]:
    """The indented lines of a module's docstring."""
    source = (ROOT / "storage" / "records" / f"{module}.py").read_text("utf-8")
    told = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    return dedent("\n".join(line for line in told if line.startswith("    "))).splitlines()


def generated() -> str:
    """The part of the page, with the marks around it."""
    source = _Source()
    lines: list[str] = []
    heading = ""
    for name, record in source.records():
        if source.heading(record.lineno) != heading:
            heading = source.heading(record.lineno)
            lines += ["", f"### {heading[0].upper()}{heading[1:]}", ""]
        title, number, key, value = record.args
        assert isinstance(title, ast.Constant)
        assert isinstance(number, ast.Constant)
        assert isinstance(number.value, int)
        assert isinstance(title.value, str)
        layout = f"`{source.codec(key)}` → `{source.codec(value)}`"
        lines.append(f"- **{number.value:02x} {title.value}**: {layout}. {source.meaning(name)}")
    lines += ["", "### Packed by hand", "", "```"]
    for module in BY_HAND:
        lines += _by_hand(module)
    text = "\n".join([*lines, "```", "", END])
    return BEGIN + text.replace("`–`", "–").replace("`below`", "below")


def written_into(page: str) -> str:
    """The page with this part in place of the one it has."""
    before, _, rest = page.partition(BEGIN)
    return before + generated() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(written_into(PAGE.read_text("utf-8")), "utf-8")
