//go:build cgo

package dcgmcgo

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static int has(const char *name) { return dlsym(RTLD_DEFAULT, name) != NULL; }
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	own "github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/dcgm"
)

const built = true

// engine calls nothing before Connect succeeded: go-dcgm binds the symbols of a
// library that is not loaded when they are first called, which ends the process.
type engine struct {
	xids *dcgm.FieldHandle // the field group of Xids; only Xids uses it
}

// New returns an engine. Nothing is loaded before Connect.
func New() own.Engine { return &engine{} }

// needed are the functions that are called, whose absence would end the process.
func needed() []string {
	return []string{
		"dcgmEntityGetLatestValues", "dcgmFieldGroupCreate", "dcgmGetAllSupportedDevices", "dcgmGetGpuStatus", "dcgmGetNvLinkLinkStatus",
		"dcgmGetValuesSince_v2", "dcgmGroupGetInfo", "dcgmHealthCheck", "dcgmHealthSet", "dcgmPolicyGet", "dcgmPolicyRegister_v2",
		"dcgmPolicySet", "dcgmUpdateAllFields", "dcgmWatchFields", "DcgmFieldGetById", "errorString",
	}
}

func has(name string) bool {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.has(c) != 0
}

func (*engine) Connect(address string) error {
	mode, arguments := dcgm.Standalone, []string{address, "0"}
	if path, socket := strings.CutPrefix(address, "unix://"); socket {
		arguments = []string{path, "1"}
	}
	if address == own.Embedded {
		mode, arguments = dcgm.Embedded, nil
	}
	if _, err := dcgm.Init(mode, arguments...); err != nil {
		if strings.HasPrefix(err.Error(), "libdcgm.so.4 not found") { // go-dcgm's words, admin.go
			return own.ErrLibraryAbsent
		}
		return err
	}
	for _, name := range needed() {
		if !has(name) {
			return fmt.Errorf("%w, %s: install DCGM 4.2 or newer", own.ErrLibraryOld, name)
		}
	}
	return nil
}

// Version is that of the engine; an older library cannot ask for it.
func (*engine) Version() (string, error) {
	if !has("dcgmHostengineVersionInfo") {
		return "", own.FunctionNotFound
	}
	info, err := dcgm.GetHostengineVersionInfo()
	if err != nil {
		return "", coded(err)
	}
	for part := range strings.SplitSeq(info.RawBuildInfoString, ";") {
		if version, found := strings.CutPrefix(part, "version:"); found {
			return version, nil
		}
	}
	return "", nil
}

func (*engine) GPUs() ([]uint, error) {
	gpus, err := dcgm.GetSupportedDevices()
	return gpus, coded(err)
}

func (*engine) Lost(gpu uint) bool {
	switch dcgm.GetGPUStatus(gpu) {
	case dcgm.EntityStatusLost, dcgm.EntityStatusInaccessible:
		return true
	}
	return false
}

// Watch leaves out fields that this engine is too old for.
func (*engine) Watch(name string, fields []uint16, every time.Duration, keep int) error {
	var known []dcgm.Short
	for _, id := range fields {
		if _, err := dcgm.FieldGetByID(dcgm.Short(id)); err == nil {
			known = append(known, dcgm.Short(id))
		}
	}
	group, err := dcgm.FieldGroupCreate(name, known)
	if err != nil {
		return coded(err)
	}
	return coded(dcgm.WatchFieldsWithGroupEx(group, dcgm.GroupAllGPUs(), every.Microseconds(), 0, int32(keep)))
}

func (*engine) Values(gpu uint, fields []uint16) ([]own.Value, error) {
	shorts := make([]dcgm.Short, len(fields))
	for i, id := range fields {
		shorts[i] = dcgm.Short(id)
	}
	found, err := dcgm.EntityGetLatestValues(dcgm.FE_GPU, gpu, shorts)
	if err != nil {
		return nil, coded(err)
	}
	values := make([]own.Value, len(found))
	for i := range found {
		values[i] = value(&found[i])
	}
	return values, nil
}

// The values that stand for none (DCGM_INT64_BLANK, DCGM_FP64_BLANK and those
// above them, DCGM_STR_BLANK and its like, in dcgm_structs.h).
const (
	blankInt   = 0x7ffffffffffffff0
	blankFloat = 140737488355328.0
	blankText  = "<<<"
)

func value(v *dcgm.FieldValue_v1) own.Value {
	to := own.Value{Field: uint16(v.FieldID), Code: own.Code(v.Status)}
	if to.Code != own.OK {
		return to
	}
	switch v.FieldType {
	case dcgm.DCGM_FT_INT64, dcgm.DCGM_FT_TIMESTAMP:
		if to.Int = v.Int64(); to.Int < blankInt {
			to.Kind = own.Int
		}
	case dcgm.DCGM_FT_DOUBLE:
		if to.Float = v.Float64(); to.Float < blankFloat {
			to.Kind = own.Float
		}
	case dcgm.DCGM_FT_STRING:
		if to.Text = text(v.Value[:]); !strings.HasPrefix(to.Text, blankText) {
			to.Kind = own.Text
		}
	}
	return to
}

// text ends at the first NUL, or with the buffer.
func text(raw []byte) string {
	before, _, _ := strings.Cut(string(raw[:min(len(raw), 256)]), "\x00") // DCGM_MAX_STR_LENGTH
	return strings.ToValidUTF8(before, "?")
}

func (e *engine) Xids(since time.Time) ([]own.Xid, time.Time, error) {
	if e.xids == nil {
		group, err := dcgm.FieldGroupCreate("tracecore xids", []dcgm.Short{own.FieldXid})
		if err != nil {
			return nil, since, coded(err)
		}
		e.xids = &group
	}
	values, next, err := dcgm.GetValuesSince(dcgm.GroupAllGPUs(), *e.xids, since)
	if err != nil {
		return nil, since, coded(err)
	}
	var xids []own.Xid
	for i := range values {
		v := &values[i]
		if code := v.Int64(); v.Status == 0 && v.EntityGroupId == dcgm.FE_GPU && code > 0 && code < blankInt {
			xids = append(xids, own.Xid{GPU: v.EntityID, Code: uint64(code)})
		}
	}
	return xids, next, nil
}

func (*engine) Links() ([]own.Link, error) {
	states, err := dcgm.GetNvLinkLinkStatus()
	if err != nil {
		return nil, coded(err)
	}
	var links []own.Link
	for _, s := range states {
		if s.ParentType == dcgm.FE_GPU && (s.State == dcgm.LS_UP || s.State == dcgm.LS_DOWN) {
			links = append(links, own.Link{GPU: s.ParentId, Number: int(s.Index), Up: s.State == dcgm.LS_UP})
		}
	}
	return links, nil
}

// coded keeps the code of an error of go-dcgm, where it has one.
func coded(err error) error {
	var of *dcgm.Error
	if errors.As(err, &of) {
		return own.Code(of.Code)
	}
	return err
}
