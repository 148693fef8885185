"""Which of Splunk's packages may be installed, and what one is to what is there."""

import pytest

from splunk_releases import package_fault, step, unsupported

SUPPORTED = ["10.0.12", "10.2.9", "10.4.4"]


@pytest.mark.parametrize(
    "version", ["10.0.12", "10.0.13", "10.2.9", "10.2.10", "10.4.4", "10.4.4.1", "10.6.0", "11.0.0", "10.4.4-abc123"]
)
def test_a_supported_release_has_no_fault(version: str) -> None:
    assert unsupported(version, SUPPORTED) == ""


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("10.0.9", "10.0.12"), ("10.2.8", "10.2.9"), ("10.4.3", "10.4.4"), ("9.4.11", "10.4.4"), ("10.1.20", "10.4.4")],
)
def test_an_older_one_names_what_is_wanted(version: str, wanted: str) -> None:
    assert unsupported(version, SUPPORTED).startswith(f"version {version} is older than {wanted};")


@pytest.mark.parametrize("version", ["", "10", "10.4", "ten.four.four"])
def test_what_is_no_version_is_refused(version: str) -> None:
    assert unsupported(version, SUPPORTED) == f"version {version!r} is not MAJOR.MINOR.PATCH"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("Package: splunk\nVersion: 10.4.4\nArchitecture: amd64", ""),
        (
            "Package: splunkforwarder\nVersion: 10.4.4\nArchitecture: amd64",
            "it is the package 'splunkforwarder', not splunk",
        ),
        ("Package: splunk\nVersion: 10.4.4\nArchitecture: arm64", "it is for arm64, and this machine is amd64"),
        ("", "it is the package 'of no name', not splunk"),
    ],
)
def test_a_package_is_splunks_and_for_the_machine(fields: str, said: str) -> None:
    assert package_fault(fields, "amd64", SUPPORTED) == said


@pytest.mark.parametrize(
    ("installed", "version", "is_then"),
    [
        ("", "10.4.4", "install"),
        ("not-installed ", "10.4.4", "install"),
        ("config-files 10.4.4", "10.4.4", "install"),
        ("half-configured 10.4.4", "10.4.4", "install"),
        ("installed 10.4.4", "10.4.4", "same"),
        ("installed 10.4.4", "10.4.5", "upgrade"),
        ("installed 10.2.9", "10.2.10", "upgrade"),
        ("installed 10.4.5", "10.4.4", "downgrade"),
        ("half-installed 10.4.5", "10.4.4", "downgrade"),
    ],
)
def test_what_a_package_is_to_what_is_there(installed: str, version: str, is_then: str) -> None:
    assert step(installed, version) == is_then
