# What is built. packer/template.py fills the first group in; agent.pkrvars.hcl and splunk.pkrvars.hcl hold the sizes.
# Patterns are checked by regex_replace, for Packer 1.6 has no regex().
# Secrets are no variables: PROXMOX_PASSWORD, or with current releases PROXMOX_TOKEN, comes from the environment.

variable "template" {
  type        = string
  description = "Which template: agent or splunk."
  validation {
    condition     = contains(["agent", "splunk"], var.template)
    error_message = "The template must be agent or splunk."
  }
}

variable "splunk_deb" {
  type        = string
  description = "Splunk's package for the template splunk, as an absolute path; empty for the embedded collector."
  default     = ""
  validation {
    condition     = regex_replace(var.splunk_deb, "^/.*$", "") == ""
    error_message = "The package must be an absolute path, such as /home/me/splunk-10.4.4-linux-amd64.deb, or empty."
  }
}

variable "splunk_deb_checksum" {
  type        = string
  description = "Its checksum as Splunk publishes it: sha512: and 128 hex digits."
  default     = ""
  validation {
    condition     = regex_replace(var.splunk_deb_checksum, "^sha512:[0-9a-f]{128}$", "") == ""
    error_message = "The checksum must be sha512: with 128 hex digits, or empty."
  }
}

variable "checkout" {
  type        = string
  description = "The checkout, as an absolute path: roles and playbooks come from there."
  validation {
    condition     = var.checkout != "" && regex_replace(var.checkout, "^/.*$", "") == ""
    error_message = "The checkout must be an absolute path, such as /home/me/glasslab."
  }
}

variable "work" {
  type        = string
  description = "A directory of this run, as an absolute path: its seed, its console and its SSH key are there."
  validation {
    condition     = var.work != "" && regex_replace(var.work, "^/.*$", "") == ""
    error_message = "The work directory must be an absolute path; packer/template.py makes one."
  }
}

variable "output" {
  type        = string
  description = "The directory for manifest, SBOM and disk image, as an absolute path."
  validation {
    condition     = var.output != "" && regex_replace(var.output, "^/.*$", "") == ""
    error_message = "The output directory must be an absolute path, such as /home/me/glasslab/packer/build."
  }
}

variable "cache" {
  type        = string
  description = "Where the control node keeps wheels, as an absolute path."
  default     = "/var/cache/glasslab"
}

variable "release" {
  type        = string
  description = "Glasslab's version, for the template's notes."
  validation {
    condition     = var.release != "" && regex_replace(var.release, "^[0-9]+\\.[0-9]+\\.[0-9]+.*$", "") == ""
    error_message = "The release must begin like 0.1.0."
  }
}

variable "commit" {
  type        = string
  description = "The commit that the template is built from, with -dirty when files differ from it."
  validation {
    condition     = var.commit != "" && regex_replace(var.commit, "^([0-9a-f]{7,40}(-dirty)?|unknown)$", "") == ""
    error_message = "The commit must be a git commit in hexadecimal, or unknown."
  }
}

variable "sbom" {
  type        = string
  description = "Where the template keeps its software bill of materials (CycloneDX JSON)."
  default     = "/usr/share/glasslab/sbom.cdx.json"
}

variable "upgrade" {
  type        = bool
  description = "Whether Debian's updates are installed first; needs package sources that the machine can reach."
  default     = true
}

variable "canaries" {
  type        = bool
  description = "For the test of the cleaning alone: leave marked secrets, keys and logs everywhere before it."
  default     = false
}

# The machine

variable "cores" {
  type        = number
  description = "Cores of the machine that is built, and of the template."
  default     = 2
  validation {
    condition     = var.cores >= 1 && var.cores <= 64
    error_message = "The cores must be 1 to 64."
  }
}

variable "memory" {
  type        = number
  description = "Memory in MB."
  default     = 4096
  validation {
    condition     = var.memory >= 512
    error_message = "The memory must be 512 MB or more."
  }
}

variable "disk_size" {
  type        = string
  description = "Disk of a template that is installed from the Debian ISO; clones keep the disk of what they are cloned from."
  default     = "16G"
  validation {
    condition     = var.disk_size != "" && regex_replace(var.disk_size, "^[0-9]+G$", "") == ""
    error_message = "The disk size must be in gigabytes, such as 16G."
  }
}

variable "ssh_username" {
  type        = string
  description = "The user that Packer and Ansible log in as while building; unless it is root, the cleaning removes it."
  default     = "root"
  validation {
    condition     = var.ssh_username != "" && regex_replace(var.ssh_username, "^[a-z][a-z0-9-]*$", "") == ""
    error_message = "The SSH user must be a name of small letters, digits and dashes."
  }
}

variable "ssh_timeout" {
  type        = string
  description = "How long the machine may take until SSH answers: a first boot, and with proxmox-iso the installation before it."
  default     = "15m"
  validation {
    condition     = var.ssh_timeout != "" && regex_replace(var.ssh_timeout, "^[0-9]+[ms]$", "") == ""
    error_message = "The SSH timeout must be in minutes or seconds, such as 15m."
  }
}

# Proxmox VE

variable "proxmox_url" {
  type        = string
  description = "URL of the API, such as https://pve.example:8006/api2/json. TLS is verified; SSL_CERT_FILE names a CA of your own."
  default     = "https://pve.invalid:8006/api2/json"
  validation {
    condition     = var.proxmox_url != "" && regex_replace(var.proxmox_url, "^https://[^/]+/api2/json$", "") == ""
    error_message = "The Proxmox URL must be like https://pve.example:8006/api2/json."
  }
}

variable "proxmox_username" {
  type        = string
  description = "User with realm; with a token (current releases) user@realm!tokenid."
  default     = "glasslab@pve"
  validation {
    condition     = var.proxmox_username != "" && regex_replace(var.proxmox_username, "^[^@]+@[a-z]+.*$", "") == ""
    error_message = "The Proxmox user must carry its realm, such as glasslab@pve."
  }
}

variable "node" {
  type        = string
  description = "The node to build on."
  default     = "pve"
}

variable "pool" {
  type        = string
  description = "The resource pool that the template is built in, as playbooks/proxmox_access.yml makes it; empty for none."
  default     = "glasslab"
}

variable "bridge" {
  type        = string
  description = "The bridge to build on: DHCP and the package sources must be reachable there. Not the lab's closed bridge."
  default     = "vmbr0"
  validation {
    condition     = var.bridge != "" && regex_replace(var.bridge, "^[A-Za-z][A-Za-z0-9_.]{0,14}$", "") == ""
    error_message = "The bridge must be the name of an interface, such as vmbr0."
  }
}

variable "vlan_tag" {
  type        = string
  description = "VLAN of the build network; empty for none."
  default     = ""
  validation {
    condition     = regex_replace(var.vlan_tag, "^([0-9]{1,4})?$", "") == ""
    error_message = "The VLAN tag must be a number, or empty."
  }
}

variable "storage" {
  type        = string
  description = "The storage for disks and the cloud-init drive."
  default     = "local-lvm"
}

variable "storage_type" {
  type        = string
  description = "The type of that storage, which Packer 1.6 wants for new disks."
  default     = "lvm-thin"
  validation {
    condition     = contains(["lvm", "lvm-thin", "zfspool", "cephfs", "rbd", "directory"], var.storage_type)
    error_message = "The storage type must be lvm, lvm-thin, zfspool, cephfs, rbd or directory."
  }
}

variable "vm_id" {
  type        = number
  description = "The id of the template; 0 for the next free one."
  default     = 0
  validation {
    condition     = var.vm_id == 0 || var.vm_id >= 100
    error_message = "The id must be 100 or higher, or 0 for the next free one."
  }
}

variable "clone_vm" {
  type        = string
  description = "proxmox-clone: the template of the Debian 13 cloud image, as roles/machine makes it."
  default     = "glasslab-debian13"
}

variable "full_clone" {
  type        = bool
  description = "proxmox-clone: a full copy instead of a linked clone. A linked one keeps needing the template that it is from."
  default     = true
}

variable "ssh_host" {
  type        = string
  description = "Proxmox sources: where SSH answers, when the guest agent cannot say it; empty asks the guest agent."
  default     = ""
}

variable "ssh_port" {
  type        = number
  description = "Proxmox sources: the port there."
  default     = 22
}

variable "iso_storage" {
  type        = string
  description = "proxmox-iso: the storage (content: iso) that the installer with its answers is uploaded to."
  default     = "local"
}

# qemu

variable "qemu_base" {
  type        = string
  description = "qemu: a Debian 13 disk image (qcow2) with cloud-init, such as Debian's genericcloud one."
  default     = ""
}

variable "qemu_checksum" {
  type        = string
  description = "qemu: its checksum, such as sha512:...; none for an image that was made on this machine."
  default     = "none"
  validation {
    condition     = var.qemu_checksum != "" && regex_replace(var.qemu_checksum, "^(none|sha512:[0-9a-f]{128}|sha256:[0-9a-f]{64})$", "") == ""
    error_message = "The checksum must be sha512: or sha256: with its digits, or none."
  }
}

variable "qemu_accelerator" {
  type        = string
  description = "qemu: kvm, or tcg for software emulation."
  default     = "kvm"
  validation {
    condition     = contains(["kvm", "tcg"], var.qemu_accelerator)
    error_message = "The accelerator must be kvm or tcg."
  }
}

variable "qemu_cpu" {
  type        = string
  description = "qemu: the processor that the machine sees."
  default     = "host"
}

variable "qemu_restrict" {
  type        = bool
  description = "qemu: whether the machine is cut off from every network; without one there are no updates."
  default     = false
}
