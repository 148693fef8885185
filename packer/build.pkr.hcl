build {
  name = "template"
  sources = [
    "source.proxmox-clone.template",
    "source.proxmox-iso.template",
    "source.qemu.template",
  ]

  # The roles of the lab, their secret-free part; the last of them cleans.
  provisioner "ansible" {
    playbook_file = "${var.checkout}/playbooks/template.yml"
    command       = "${var.checkout}/.venv/bin/ansible-playbook"
    user          = var.ssh_username
    use_proxy     = false
    ansible_env_vars = [
      "ANSIBLE_CONFIG=${var.checkout}/ansible.cfg",
      # The key of a machine that boots for the first time is known to nobody, and it is gone when the template is finished.
      "ANSIBLE_HOST_KEY_CHECKING=False",
      "LC_ALL=C.UTF-8",
    ]
    extra_arguments = [
      "-e", jsonencode({
        template_service           = var.template
        splunk_mode                = var.splunk_deb == "" ? "collector" : "enterprise"
        splunk_deb                 = var.splunk_deb
        splunk_deb_checksum        = var.splunk_deb_checksum
        template_name              = local.name
        template_release           = var.release
        template_user              = var.ssh_username
        template_upgrade           = var.upgrade
        template_sbom              = var.sbom
        template_sbom_copy         = "${var.output}/${var.template}.cdx.json"
        template_cleaning_canaries = var.canaries
        runtime_cache              = var.cache
      }),
      "--ssh-common-args", "-o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes",
    ]
  }

  post-processor "manifest" {
    output     = "${var.output}/manifest.json"
    strip_path = true
    custom_data = {
      template = var.template
      release  = var.release
      commit   = var.commit
      sbom     = "${var.template}.cdx.json"
    }
  }
}
