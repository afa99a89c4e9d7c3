package mutants

// What the schema refuses, whatever the code does: migrations.
var schemaMutants = []mutant{
	{
		name: "index-live-unit",
		why:  "a unit could be given a second live key by code that is wrong",
		file: "migrations/00001_keytill.sql",
		old:  "CREATE UNIQUE INDEX keys_live_unit",
		new:  "CREATE INDEX keys_live_unit",
		dir:  "inventory",
		test: "TestAUnitCannotHaveASecondLiveKey",
	},
}
