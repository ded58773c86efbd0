"""The reference says of commands, keys, errors and statuses what the code does."""

from __future__ import annotations

import json

import command_page
import error_page
import jsonschema
import key_page
import pytest

from learncast import Status
from learncast.study import schema as study_schema
from learncast.study.schema import KINDS, keys, schema


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_every_key_is_one_that_the_models_take(kind):
    whole = schema(kind)
    tables = [whole, *whole["$defs"].values()]
    for key in keys(kind):
        value = key_page.example(key)
        fitting = [
            one["properties"][key.name]
            for one in tables
            if key.name in one.get("properties", {}) and study_schema._words(one["properties"][key.name]) == key.type
        ]
        assert any(
            jsonschema.Draft202012Validator({**one, "$defs": whole["$defs"]}).is_valid(value) for one in fitting
        ), f"{key.table} {key.name} = {value!r}"


def test_every_key_stands_on_the_page_with_its_meaning():
    page = key_page.page()
    for kind in KINDS:
        for key in keys(kind):
            assert f"| `{key.name}` |" in page
            assert key.meaning.replace("|", "\\|").replace("$", "\\$") in page


def test_schemas_are_those_of_the_command():
    for kind in KINDS:
        assert json.loads(key_page.schemas()[f"learncast-{kind}.schema.json"]()) == schema(kind)


def test_every_command_and_option_stands_on_the_page_with_an_example():
    page = command_page.page()
    for name, one in command_page.commands():
        section = page.split(f" {name}\n", 1)[1].split("\n## ")[0]
        if hasattr(one, "commands"):
            continue
        assert f"$ {name}" in section
        for parameter in one.params:
            if not parameter.hidden and parameter.param_type_name == "option":
                assert f"`{parameter.opts[0]}`" in section


def test_every_status_has_a_cure():
    assert set(error_page.CURES) == set(Status)


def test_every_error_of_the_code_is_listed_with_a_remedy():
    listed = list(error_page.raised())
    assert len(listed) > 100
    assert all(one.required.strip() and one.remedy.strip() for one in listed)
