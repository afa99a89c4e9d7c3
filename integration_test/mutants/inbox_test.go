package mutants

// The door in: webhooks.
var inboxMutants = []mutant{
	{
		name: "verify-future",
		why:  "a recorded request with a time years ahead could be played again until then",
		file: "webhooks/verify.go",
		old:  "if signed.After(now.Add(v.tolerance)) {",
		new:  "if false {",
		dir:  "webhooks",
		test: "TestVerifyBelievesOnlyAFreshSignatureOfOneSecret",
	},
}
