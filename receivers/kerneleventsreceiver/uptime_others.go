//go:build !linux

package kerneleventsreceiver

import (
	"errors"
	"time"
)

func uptime() (time.Duration, error) { return 0, errors.ErrUnsupported }
