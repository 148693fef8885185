# Three ways to the same template. Each attribute is one that Packer 1.6.6 and the current plugins know: packer/attributes.yml.

locals {
  name = "glasslab-template-${var.template}"
  # The first words are how Glasslab knows what it built.
  notes = "Built by Glasslab ${var.release}\n\nTemplate ${var.template}, from commit ${var.commit}.\n\nSBOM: ${var.sbom} in the machine (CycloneDX)."
  key   = "${var.work}/id_ed25519"
}

# From a cloud-image template on the node. Packer makes an SSH key of its own and hands it over by cloud-init.
source "proxmox-clone" "template" {
  proxmox_url          = var.proxmox_url
  username             = var.proxmox_username
  node                 = var.node
  pool                 = var.pool
  clone_vm             = var.clone_vm
  full_clone           = var.full_clone
  vm_id                = var.vm_id
  vm_name              = "${local.name}-build"
  template_name        = local.name
  template_description = local.notes

  os              = "l26"
  cpu_type        = "host"
  cores           = var.cores
  memory          = var.memory
  scsi_controller = "virtio-scsi-single"
  qemu_agent      = true
  network_adapters {
    bridge   = var.bridge
    model    = "virtio"
    vlan_tag = var.vlan_tag
  }
  cloud_init              = true
  cloud_init_storage_pool = var.storage

  ssh_username = var.ssh_username
  ssh_host     = var.ssh_host
  ssh_port     = var.ssh_port
  ssh_timeout  = var.ssh_timeout
}

# From Debian's netinst image with the answers in it: a build network behind NAT could not reach an HTTP server of Packer's, and
# additional_iso_files, for a second image, is broken in 1.6.6.
source "proxmox-iso" "template" {
  proxmox_url          = var.proxmox_url
  username             = var.proxmox_username
  node                 = var.node
  pool                 = var.pool
  vm_id                = var.vm_id
  vm_name              = "${local.name}-build"
  template_name        = local.name
  template_description = local.notes

  iso_url          = "${var.work}/seed.iso"
  iso_checksum     = "file:${var.work}/seed.iso.sha512"
  iso_storage_pool = var.iso_storage
  # The empty disk first: it does not boot until the installation has ended.
  boot = "order=scsi0;ide2;net0"

  os              = "l26"
  cpu_type        = "host"
  cores           = var.cores
  memory          = var.memory
  scsi_controller = "virtio-scsi-single"
  qemu_agent      = true
  disks {
    type              = "scsi"
    disk_size         = var.disk_size
    storage_pool      = var.storage
    storage_pool_type = var.storage_type
    format            = "raw"
  }
  network_adapters {
    bridge   = var.bridge
    model    = "virtio"
    vlan_tag = var.vlan_tag
  }
  cloud_init              = true
  cloud_init_storage_pool = var.storage

  ssh_username         = var.ssh_username
  ssh_private_key_file = local.key
  ssh_host             = var.ssh_host
  ssh_port             = var.ssh_port
  ssh_timeout          = var.ssh_timeout
}

# On this machine, from a cloud image, to a disk image that `qm importdisk` takes.
source "qemu" "template" {
  disk_image       = true
  iso_url          = var.qemu_base
  iso_checksum     = var.qemu_checksum
  skip_resize_disk = true
  skip_compaction  = true
  format           = "qcow2"
  vm_name          = "${var.template}.qcow2"
  # packer/template.py gives it its name once it is finished, in the place of an earlier one.
  output_directory = "${var.output}/${var.template}-qemu.new"

  headless       = true
  accelerator    = "none"
  machine_type   = "q35"
  cpus           = var.cores
  memory         = var.memory
  disk_interface = "virtio"
  disk_cache     = "unsafe"
  disk_discard   = "unmap"
  net_device     = "virtio-net"
  # Packer's own -netdev would open the SSH port on every address of this machine.
  qemuargs = [
    ["-accel", var.qemu_accelerator == "tcg" ? "tcg,thread=multi,tb-size=512" : "kvm"],
    ["-cpu", var.qemu_cpu],
    ["-netdev", "user,id=user.0,restrict=${var.qemu_restrict ? "on" : "off"},hostfwd=tcp:127.0.0.1:{{ .SSHHostPort }}-:22"],
    ["-device", "virtio-rng-pci"],
    ["-serial", "file:${var.work}/console.log"],
  ]
  cd_files         = ["${var.work}/seed/user-data", "${var.work}/seed/meta-data"]
  cd_label         = "cidata"
  vnc_bind_address = "127.0.0.1"

  ssh_username         = var.ssh_username
  ssh_private_key_file = local.key
  ssh_timeout          = var.ssh_timeout
  boot_wait            = "1s"
  shutdown_command     = var.ssh_username == "root" ? "systemctl poweroff" : "sudo systemctl poweroff"
  shutdown_timeout     = "5m"
}
