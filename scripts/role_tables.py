"""Writes each role's README from its meta/argument_specs.yml, the only place where its variables are declared.

Usage: role_tables.py [--check]   (--check: exit 1 and name the files when one is not what the specs give)
"""

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent


def code(text: str) -> str:
    """Ansible's C(...) as Markdown code."""
    while "C(" in text:
        head, _, rest = text.partition("C(")
        inner, _, tail = rest.partition(")")
        text = f"{head}`{inner}`{tail}"
    return text


def readme(role: Path) -> str:
    """The README of one role."""
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    lines = [f"# {role.name}", "", *section(specs["main"])]
    tasks = yaml.safe_load((role / "tasks" / "main.yml").read_text(encoding="utf-8")) or []
    tags = sorted({tag for task in tasks for tag in task.get("tags", [])})
    if tags:
        lines += ["", f"Tags: {', '.join(f'`{tag}`' for tag in tags)}."]
    for name, spec in specs.items():
        if name != "main":
            lines += ["", f"## tasks_from: {name}", "", *section(spec)]
    return "\n".join(lines) + "\n\nThis table is written by `scripts/role_tables.py` from `meta/argument_specs.yml`.\n"


def section(spec: dict[str, Any]) -> list[str]:
    """One entry point of a role: what it is, and its variables."""
    lines = [code(spec["short_description"].rstrip(".") + "."), ""]
    description = spec.get("description", [])
    for text in [description] if isinstance(description, str) else description:
        lines += [code(text), ""]
    lines += ["| variable | type | default | description |", "|---|---|---|---|"]
    for name, option in spec.get("options", {}).items():
        kind = option.get("type", "str") + (f" of {option['elements']}" if "elements" in option else "")
        default = "required" if option.get("required") else f"`{option.get('default', '')!s}`".replace("``", "")
        texts = option.get("description", "")
        text = " ".join(texts) if isinstance(texts, list) else texts
        if "choices" in option:
            text += f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}."
        lines.append(
            f"| `{name}` | {kind} | {default.replace('|', chr(92) + '|')} | {code(text).replace('|', chr(92) + '|')} |"
        )
    return lines


def main() -> None:
    """Write or compare."""
    check = sys.argv[1:] == ["--check"]
    stale = []
    for spec in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        role = spec.parent.parent
        target, text = role / "README.md", readme(role)
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            continue
        if check:
            stale.append(str(target.relative_to(ROOT)))
        else:
            target.write_text(text, encoding="utf-8")
    if stale:
        sys.exit(f"role_tables: not as their argument_specs give them: {', '.join(stale)}; run scripts/role_tables.py")


if __name__ == "__main__":
    main()
