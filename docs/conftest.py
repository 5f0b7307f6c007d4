"""The guide's examples run as tests, in the order they are read."""

from __future__ import annotations

from doctest import ELLIPSIS

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from tests.devices import request_host_devices

request_host_devices()

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS)],
    patterns=["guide/*.md"],
    fixtures=["tidied"],  # which is used by itself only where pytest collects
).pytest()
