# The log's machine, in the published sizes. Of Splunk Enterprise when a package is given, else of the embedded collector:
#   make template TEMPLATE=splunk ARGS="splunk_deb=/path/splunk.deb splunk_deb_checksum=sha512:..."
template  = "splunk"
cores     = 2
memory    = 5120
disk_size = "32G"
