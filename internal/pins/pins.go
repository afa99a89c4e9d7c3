// Package pins keeps the module's requirements until the code that needs them is in.
package pins

import (
	_ "pgregory.net/rapid"
)
