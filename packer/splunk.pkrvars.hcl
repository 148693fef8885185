# The log's machine, in the published sizes.
template  = "splunk"
cores     = 2
memory    = 5120
disk_size = "32G"
