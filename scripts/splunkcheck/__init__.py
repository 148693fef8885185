"""The checker of the Splunk app: what splunk-appinspect and ksconf do not look at. `scripts/splunk_app.py` runs it."""
