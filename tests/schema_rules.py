"""The few words of JSON Schema that ours are written in."""

from __future__ import annotations

import re
from typing import Any

TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool}


def holds(value: Any, rule: Any) -> bool:
    """True when a value keeps a schema of the few words that ours uses."""
    if isinstance(rule, bool):
        return rule
    return all(_word(word, argument, value, rule) for word, argument in rule.items())


def _word(word: str, argument: Any, value: Any, rule: dict[str, Any]) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    checks: dict[str, Any] = {
        "type": lambda: _is(value, argument),
        "not": lambda: not holds(value, argument),
        "enum": lambda: any(type(value) is type(each) and value == each for each in argument),
        "const": lambda: type(value) is type(argument) and value == argument,
        "anyOf": lambda: any(holds(value, each) for each in argument),
        "allOf": lambda: all(holds(value, each) for each in argument),
        "if": lambda: not holds(value, argument) or holds(value, rule["then"]),
        "minimum": lambda: not number or value >= argument,
        "exclusiveMinimum": lambda: not number or value > argument,
        "maximum": lambda: not number or value <= argument,
        "minLength": lambda: not isinstance(value, str) or len(value) >= argument,
        "pattern": lambda: not isinstance(value, str) or re.search(argument, value) is not None,
        "items": lambda: not isinstance(value, list) or all(holds(each, argument) for each in value),
        "minItems": lambda: not isinstance(value, list) or len(value) >= argument,
        "uniqueItems": lambda: not isinstance(value, list) or len({repr(each) for each in value}) == len(value),
        "required": lambda: not isinstance(value, dict) or value.keys() >= set(argument),
        "minProperties": lambda: not isinstance(value, dict) or len(value) >= argument,
        "properties": lambda: (
            not isinstance(value, dict)
            or all(holds(value[name], each) for name, each in argument.items() if name in value)
        ),
        "propertyNames": lambda: not isinstance(value, dict) or all(holds(name, argument) for name in value),
        "additionalProperties": lambda: (
            not isinstance(value, dict)
            or all(holds(each, argument) for name, each in value.items() if name not in rule.get("properties", {}))
        ),
    }
    assert word in checks or word in ("$schema", "title", "description", "examples", "then"), word
    return checks[word]() if word in checks else True


def _is(value: Any, name: str) -> bool:
    if name in ("integer", "number"):
        return type(value) is int or (name == "number" and type(value) is float)
    return isinstance(value, TYPES[name])
