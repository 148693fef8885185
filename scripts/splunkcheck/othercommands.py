"""The commands of SPL that the checker knows by name only: behind one, any field may be there."""

from __future__ import annotations

import re
from typing import Final

_KNOWN: Final = """
abstract accum addcoltotals addinfo addtotals analyzefields anomalies anomalousvalue anomalydetection arules associate
autoregress bucket cluster cofilter concurrency contingency convert correlate datamodel dbinspect delta diff erex
eventcount extract fieldsummary filldown findtypes folderize foreach from gauge gentimes geom geomfilter geostats
highlight history iconify iplocation kmeans kv kvform loadjob localize localop makecontinuous makemv mcatalog metadata
metasearch mpreview mstats multikv multisearch mvcombine nomv outlier overlap pivot predict rangemap relevancy reltime
replace rest reverse rtorder searchtxn selfjoin set setfields strcat tags timewrap transaction transpose trendline
tstats typeahead typelearner typer union uniq untable walklex x11 xmlkv xmlunescape xpath xyseries
"""
KNOWN: Final = frozenset(_KNOWN.split())
# They begin a search, and a pipe stands before them.
_FIRST: Final = """
datamodel dbinspect eventcount from gentimes history loadjob mcatalog metadata metasearch mstats multisearch rest tstats
typeahead walklex
"""
FIRST: Final = frozenset(_FIRST.split())
# They write into an index or a file, send something, or run a program.
_CHANGING: Final = """
collect delete dump map mcollect meventcollect outputcsv outputtext runshellscript script sendalert sendemail sichart
sirare sistats sitimechart sitop summaryindex tscollect
"""
CHANGING: Final = frozenset(_CHANGING.split())
# How many words, beside options, a command takes at least.
_LEAST: Final = {
    "xyseries": 3, "untable": 3, "strcat": 2, "contingency": 2, "makemv": 1, "mvcombine": 1, "nomv": 1, "convert": 1,
    "accum": 1, "delta": 1, "autoregress": 1, "iplocation": 1, "erex": 1, "bucket": 1, "gentimes": 0, "foreach": 1,
}  # fmt: skip
_CONVERSIONS: Final = frozenset(
    ("auto", "ctime", "dur2sec", "memk", "mktime", "mstime", "none", "num", "rmcomma", "rmunit")
)


def fault(name: str, rest: str) -> str:
    """Say what is wrong with what stands behind one of these commands, as far as its name tells."""
    if re.search(r"(?:\s(?:AS|BY)|,)$", rest, re.I):
        return f"nothing stands behind {rest[-12:]!r}"
    words = re.sub(r"\w+=(?:\"[^\"]*\"|\S+)", "", rest).split()
    if len(words) < _LEAST.get(name, 0):
        return f"it takes {_LEAST[name]} or more fields, not {len(words)}"
    called = re.findall(r"(\w+)\(", rest) if name == "convert" else []
    unknown = sorted(set(called) - _CONVERSIONS)
    return f"{unknown[0]}() is no conversion; there is {', '.join(sorted(_CONVERSIONS))}" if unknown else ""
