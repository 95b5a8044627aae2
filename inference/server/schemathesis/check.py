"""Tests a running server against its own OpenAPI document: check.py URL [CASES].

No answer is a 5xx, each has a status, a type and a schema of the document, and requests
that the document does not allow are refused. CASES limits the cases of an operation.
"""

import pathlib
import subprocess
import sys
import tempfile

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
]


def main() -> int:
    url = sys.argv[1]
    cases = sys.argv[2] if len(sys.argv) > 2 else "40"
    schemathesis = pathlib.Path(sys.executable).absolute().with_name("schemathesis")
    command = [schemathesis, "run", f"{url}/openapi.json", "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing"]
    # A draining server refuses all requests after that.
    command += ["--exclude-path", "/v1/drain", "--max-examples", cases, "--seed", "1", "--continue-on-failure", "--request-timeout", "60"]
    with tempfile.TemporaryDirectory() as folder:  # it writes a cache
        return subprocess.run([*command, "--no-color"], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
