package mutants

// Claiming a key: inventory/claim.go.
var claimMutants = []mutant{
	{
		name: "claim-skip-locked",
		why:  "claims of one pool would wait for each other",
		file: "inventory/claim.go",
		old:  `skipLocked    = "SKIP LOCKED"`,
		new:  `skipLocked    = "NOWAIT"`,
		dir:  "inventory",
		test: "TestSixtyFourClaimersShareFiveKeys|TestLockedKeysAreContendedNotSoldOut",
	},
}
