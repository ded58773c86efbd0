"""The generated reference agrees with the commands, keys, errors and statuses of the code."""

from __future__ import annotations

import json

import command_page
import error_page
import jsonschema
import key_page
import pytest

from learncast import Status
from learncast.study import schema


@pytest.mark.parametrize("kind", schema.KINDS)
def test_the_example_of_every_key_is_valid(kind):
    file = schema.schema(kind)
    tables = [file, *file["$defs"].values()]
    for key in schema.keys(kind):
        value = key_page.example(key)
        fitting = [
            one["properties"][key.name]
            for one in tables
            if key.name in one.get("properties", {}) and schema.value_type(one["properties"][key.name]) == key.type
        ]
        assert any(
            jsonschema.Draft202012Validator({**one, "$defs": file["$defs"]}).is_valid(value) for one in fitting
        ), f"{key.table} {key.name} = {value!r}"


def test_every_key_is_on_the_page_with_its_description():
    page = key_page.page()
    for kind in schema.KINDS:
        for key in schema.keys(kind):
            assert f"| `{key.name}` |" in page
            assert key.meaning.replace("|", "\\|").replace("$", "\\$") in page


def test_schemas_are_those_of_the_command():
    for kind in schema.KINDS:
        assert json.loads(key_page.schemas()[f"learncast-{kind}.schema.json"]()) == schema.schema(kind)


def test_every_command_and_option_is_on_the_page_with_an_example():
    page = command_page.page()
    for name, one in command_page.commands():
        section = page.split(f" {name}\n", 1)[1].split("\n## ")[0]
        if hasattr(one, "commands"):
            continue
        assert f"$ {name}" in section
        for parameter in one.params:
            if not parameter.hidden and parameter.param_type_name == "option":
                assert f"`{parameter.opts[0]}`" in section


def test_every_status_has_a_remedy():
    assert set(error_page.REMEDIES) == set(Status)


def test_the_errors_of_the_code_are_listed_with_message_and_field():
    listed = list(error_page.raised())
    assert len(listed) > 100
    assert ("InvalidSpec", "_core", "seconds") in {(one.kind, one.package, one.field) for one in listed}
