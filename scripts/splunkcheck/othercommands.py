"""The commands of SPL that the checker knows by name only: behind one, any field may be there."""

from __future__ import annotations

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
