# For current releases alone: Packer 1.6 has these builders in it and stops at required_plugins. packer/template.py leaves this file
# out for it; everything else is one set of templates for both.
packer {
  required_version = ">= 1.7.0"
  required_plugins {
    proxmox = {
      version = ">= 1.2.0, < 2.0.0"
      source  = "github.com/hashicorp/proxmox"
    }
    qemu = {
      version = ">= 1.1.0, < 2.0.0"
      source  = "github.com/hashicorp/qemu"
    }
    ansible = {
      version = ">= 1.1.0, < 2.0.0"
      source  = "github.com/hashicorp/ansible"
    }
  }
}
