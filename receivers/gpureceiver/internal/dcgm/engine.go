// Package dcgm reads GPUs from a host engine of NVIDIA's Data Center GPU Manager:
// which fields to ask for, what they mean in the words that all GPU receivers
// share, and when a GPU or the engine is lost. The engine itself stands behind an
// interface, which the true library satisfies through go-dcgm (package dcgmcgo)
// and tests satisfy with a script. Numbers are those of DCGM 4 (dcgm_fields.h,
// dcgm_structs.h as shipped with go-dcgm v1.4611.0).
package dcgm

import (
	"errors"
	"strconv"
	"time"
)

// Code is what a DCGM call returns (dcgmReturn_t). A code that is not OK is an
// error.
type Code int

// The codes that are told apart.
const (
	OK                    Code = 0
	NotSupported          Code = -6
	Uninitialized         Code = -10
	UnknownField          Code = -13
	NoData                Code = -14
	StaleData             Code = -15
	NotWatched            Code = -16
	GPULost               Code = -18
	ResetRequired         Code = -19
	FunctionNotFound      Code = -20
	ConnectionNotValid    Code = -21
	ModuleNotLoaded       Code = -33
	GroupIsEmpty          Code = -35
	ProfilingNotSupported Code = -36
	InsufficientDriver    Code = -44
	NVMLNotLoaded         Code = -56
	GPUsDetached          Code = -67
)

// codeWithoutNumber is of an error that go-dcgm gives as a text alone.
const codeWithoutNumber Code = -1000

// Error is the name of the code as in dcgm_structs.h, in lower case.
func (c Code) Error() string {
	names := map[Code]string{
		OK: "ok", -1: "badparam", -3: "generic_error", -4: "memory", -5: "not_configured", NotSupported: "not_supported", -7: "init_error",
		-8: "nvml_error", -9: "pending", Uninitialized: "uninitialized", -11: "timeout", -12: "ver_mismatch", UnknownField: "unknown_field",
		NoData: "no_data", StaleData: "stale_data", NotWatched: "not_watched", -17: "no_permission", GPULost: "gpu_is_lost",
		ResetRequired: "reset_required", FunctionNotFound: "function_not_found", ConnectionNotValid: "connection_not_valid",
		-22: "gpu_not_supported", -29: "requires_root", ModuleNotLoaded: "module_not_loaded", -34: "in_use", GroupIsEmpty: "group_is_empty",
		ProfilingNotSupported: "profiling_not_supported", -37: "profiling_library_error", -38: "profiling_multi_pass",
		InsufficientDriver: "insufficient_driver_version", -54: "paused", NVMLNotLoaded: "nvml_not_loaded",
		-57: "nvml_driver_timeout", GPUsDetached: "gpus_detached", codeWithoutNumber: "failed",
	}
	if name, known := names[c]; known {
		return name
	}
	return "dcgm_error_" + strconv.Itoa(int(c))
}

// absent reports whether c says that this GPU, driver or engine has no such
// thing: nothing to report as an error.
func (c Code) absent() bool {
	switch c {
	case NotSupported, UnknownField, NoData, StaleData, NotWatched, FunctionNotFound, ModuleNotLoaded, GroupIsEmpty, ProfilingNotSupported, InsufficientDriver:
		return true
	}
	return false
}

// codeOf is the code of an error.
func codeOf(err error) Code {
	if err == nil {
		return OK
	}
	code := codeWithoutNumber
	_ = errors.As(err, &code)
	return code
}

// The errors of Connect. Any other means that the engine cannot be reached.
var (
	ErrLibraryAbsent = errors.New("libdcgm.so.4 cannot be loaded")
	ErrLibraryOld    = errors.New("libdcgm.so.4 lacks a function")
)

// Embedded is the address of an engine within the helper.
const Embedded = "embedded"

// Engine is a host engine. Each of its calls may hang as long as the driver, or
// the network, does. No call is allowed before Connect succeeded.
type Engine interface {
	// Connect loads the library and connects to the engine at an address
	// (host:port, unix:///path), or starts one (Embedded).
	Connect(address string) error
	// Version of the engine.
	Version() (string, error)
	// GPUs lists the ids of the GPUs that answer.
	GPUs() ([]uint, error)
	// Lost reports whether the engine holds a GPU for lost.
	Lost(gpu uint) bool
	// Watch has the engine read fields of all GPUs every so often and keep so many
	// values of each; fields that it does not know are left out.
	Watch(name string, fields []uint16, every time.Duration, keep int) error
	// Values are the last values of fields that are watched.
	Values(gpu uint, fields []uint16) ([]Value, error)
	// Xids are those since a time; next is the time for the next call.
	Xids(since time.Time) (xids []Xid, next time.Time, err error)
	// Links lists the NVLinks that are up or down.
	Links() ([]Link, error)
	// WatchHealth starts the engine's own watches; Health is what they find.
	WatchHealth() error
	Health() ([]Finding, error)
	// Violations listens for violations of the policies that are set, and sets
	// those of these conditions that are not.
	Violations(set []string) (<-chan Violation, error)
	// Dropped counts violations that came faster than they were taken.
	Dropped() uint64
}

// Value is the value of a field; which part counts depends on the field.
type Value struct {
	Field uint16
	Code  Code
	Kind  Kind
	Int   int64
	Float float64
	Text  string
}

// Kind is what a value is.
type Kind int

// The kinds of values.
const (
	Blank Kind = iota
	Int
	Float
	Text
)

// number is the value as a number.
func (v *Value) number() (float64, bool) {
	switch v.Kind {
	case Int:
		return float64(v.Int), v.Int >= 0
	case Float:
		return v.Float, v.Float >= 0
	}
	return 0, false
}

// Xid is one that a GPU reported.
type Xid struct {
	GPU  uint
	Code uint64
}

// Link is an NVLink of a GPU.
type Link struct {
	GPU    uint
	Number int
	Up     bool
}

// Finding is what a health watch found.
type Finding struct {
	GPU    uint
	System string
	Failed bool
	Text   string
}

// Violation of a policy.
type Violation struct {
	GPU       uint
	Condition string
	Text      string
}
