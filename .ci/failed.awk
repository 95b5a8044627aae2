# What go test said, as it says it, and once more at the end what failed: the names
# of the tests, and the last lines of each package. "status N" ends the input, and is
# the status.
/^status [0-9]+$/ { status = $2; next }
{ print; fflush(); line[++n] = $0 }
/^ *--- FAIL/ { names = names $0 "\n" }
/^(ok  |\?   |FAIL)\t/ {
	if (/^FAIL/) {
		for (i = n > 40 ? n - 39 : 1; i <= n; i++) last = last line[i] "\n"
	}
	n = 0
}
END {
	if (status) {
		for (i = n > 40 ? n - 39 : 1; i <= n; i++) last = last line[i] "\n"
		printf "\nFailed with status %d:\n%s%s", status, last, names
	}
	exit status
}
