# The README's table of speed, from what the benchmarks printed and, after a line of its own, their medians by benchstat.

function plain(name) { sub(/^Benchmark/, "", name); sub(/-[0-9]+$/, "", name); return name }

/^== medians/ { medians = 1; FS = ","; next }

!medians && /^(date|cores|go|postgresql|cpu): / { key = $1; sub(/:$/, "", key); value = $0; sub(/^[^ ]* /, "", value); about[key] = value }

!medians && /^Benchmark/ {
	for (i = 3; i < NF; i += 2) {
		at = plain($1) SUBSEP $(i + 1)
		if (!(at in least) || $i + 0 < least[at]) least[at] = $i + 0
		if (!(at in most) || $i + 0 > most[at]) most[at] = $i + 0
	}
}

medians && $1 == "" && $3 == "CI" {
	unit = $2
	scale = unit ~ /(^|-)B$/ ? 1e-6 : 1 # benchstat makes bytes of MB
	if (scale != 1) sub(/B$/, "MB", unit)
}
medians && /^[A-Z]/ && $2 != "" { median[plain($1), unit] = $2 * scale }

function number(x,    text, head) {
	if (x < 9.95) return sprintf("%.2f", x)
	if (x < 99.5) return sprintf("%.1f", x)
	text = sprintf("%.0f", x)
	for (head = ""; length(text) > 3; text = substr(text, 1, length(text) - 3)) head = "," substr(text, length(text) - 2) head
	return text head
}

# typical(benchmark, unit): the median, and the range where the runs differ
function typical(name, unit,    at) {
	at = name SUBSEP unit
	if (!(at in median)) return "not measured"
	if (number(least[at]) == number(most[at])) return number(median[at])
	return number(median[at]) " (" number(least[at]) " – " number(most[at]) ")"
}

function row(what, goal, here) { printf "| %s | %s | %s |\n", what, goal, here }

END {
	printf "Measured on %s: %s, %s cores, %s, PostgreSQL %s. A median, with the range of the runs.\n\n", about["date"], about["cpu"], about["cores"], about["go"], about["postgresql"]
	row("what is measured", "goal", "here")
	print "|---|---|---|"
	row("settle, all its writes, 32 workers, one hot pool", "≥ 5 × textbook, ≥ 0.25 × bare",
		typical("Settle", "x/textbook") " × textbook, " typical("Settle", "x/bare") " × bare; " typical("Settle", "settles/s") " a second")
	row("one pool against 64", "≥ 0.95", typical("HotPool", "x/64pools"))
	row("200,000 claims under a snapshot that is held", "≥ 0.95 of their start", typical("HeldSnapshot", "x/start") "; textbook " typical("HeldSnapshot", "textbook-x/start"))
	row("a pool of " number(median["PoolSize", "keys"]) " keys, half of them sold, against one of 10,000", "buffers a claim ≤ 1.1 ×; WAL a settle ≤ textbook",
		typical("PoolSize", "x/small") " ×, " typical("PoolSize", "buffers/claim") " buffers; " typical("PoolSize", "walbytes/settle") " bytes, textbook " typical("PoolSize", "walbytes/textbook"))
	row("signed webhook over HTTP to a durable 200, 128 connections", "≥ 1 × bare; p99 < 25 ms at half load; a flood of bad ones costs < 2 ×",
		typical("Ingest", "x/bare") " × bare (" typical("Ingest", "few-x/bare") " with 32), " typical("Ingest", "events/s") " a second; p99 " typical("Ingest", "p99-ms") " ms; flood " typical("Ingest", "x/flooded") " ×")
	row("restock that serves 50,000 waiting units", "≥ 20 × settling them one by one", typical("Restock", "x/one-by-one") " ×, " typical("Restock", "units/s") " a second")
	row("import of 1,000,000 keys", "beside COPY of its rows", typical("Import", "x/copy") " × COPY, " typical("Import", "keys/s") " a second, " typical("Import", "MB") " MB")
	row("sweep of 100,000 payments", "2 calls for 100 payments", typical("Sweep/100000", "calls") " calls, " typical("Sweep/100000", "sweep-s") " s, " typical("Sweep/100000", "peak-MB") " MB")
	row("mail, to a server that answers after 10 ms", "≥ 0.7 × bare SMTP", typical("Delivery/server=10ms", "x/bare") " × bare, " typical("Delivery/server=10ms", "deliveries/s") " a second")
	row("start of `keytill serve` to ready, on an existing database", "< 300 ms", typical("Start", "ms/start") " ms")
}
