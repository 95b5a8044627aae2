# Prints the output of go test as it arrives, then a summary of failures: the last
# lines of each failed package and the names of its tests. The line "status N" ends
# the input; awk exits with status N.
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
