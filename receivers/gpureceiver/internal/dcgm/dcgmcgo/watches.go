//go:build cgo

package dcgmcgo

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	own "github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/dcgm"
)

func (*engine) WatchHealth() error {
	return coded(dcgm.HealthSet(dcgm.GroupAllGPUs(), dcgm.DCGM_HEALTH_WATCH_ALL))
}

// system is the name of a health watch, which is one bit.
func system(watch dcgm.HealthSystem) string {
	names := own.Systems()
	if bit := bits.TrailingZeros32(uint32(watch)); bits.OnesCount32(uint32(watch)) == 1 && bit < len(names) {
		return names[bit]
	}
	return names[len(names)-1]
}

// Health is what the watches of GPUs found; an NVSwitch has no GPU to tell it of.
func (*engine) Health() ([]own.Finding, error) {
	response, err := dcgm.HealthCheck(dcgm.GroupAllGPUs())
	if err != nil {
		return nil, coded(err)
	}
	var found []own.Finding
	for _, i := range response.Incidents {
		if i.EntityInfo.EntityGroupId != dcgm.FE_GPU || i.Health == dcgm.DCGM_HEALTH_RESULT_PASS {
			continue
		}
		found = append(found, own.Finding{
			GPU: i.EntityInfo.EntityId, System: system(i.System), Failed: i.Health == dcgm.DCGM_HEALTH_RESULT_FAIL,
			Text: strings.ToValidUTF8(i.Error.Message, "?"),
		})
	}
	return found, nil
}

// conditions are the policies by name.
func conditions() map[string]dcgm.PolicyCondition {
	return map[string]dcgm.PolicyCondition{
		own.PolicyECC: dcgm.DbePolicy, own.PolicyPCIe: dcgm.PCIePolicy, own.PolicyPages: dcgm.MaxRtPgPolicy,
		own.PolicyThermal: dcgm.ThermalPolicy, own.PolicyPower: dcgm.PowerPolicy, own.PolicyNVLink: dcgm.NvlinkPolicy,
	}
}

// queued is how many violations wait to be taken; go-dcgm counts those beyond.
const queued = 256

func (*engine) Dropped() uint64 { return dcgm.PolicyViolationDropCount() }

// Violations listens for all, in two subscriptions: go-dcgm keeps what an operator
// set when it sets those that are missing, and sets nothing for the rest.
func (*engine) Violations(set []string) (<-chan own.Violation, error) {
	var mine, others []dcgm.PolicyCondition
	for name, condition := range conditions() {
		if slices.Contains(set, name) {
			mine = append(mine, condition)
		} else {
			others = append(others, condition)
		}
	}
	out := make(chan own.Violation, queued)
	pass := func(in <-chan dcgm.PolicyViolation, err error) error {
		if err != nil {
			return coded(err)
		}
		go func() {
			for v := range in {
				out <- violation(&v)
			}
		}()
		return nil
	}
	background := context.Background() // the connection lasts as long as the process
	if len(mine) > 0 {
		if err := pass(dcgm.ListenForPolicyViolationsForGroup(background, dcgm.GroupAllGPUs(), mine...)); err != nil {
			return nil, err
		}
	}
	if len(others) > 0 {
		if err := pass(dcgm.WatchPolicyViolationsForGroup(background, dcgm.GroupAllGPUs(), others...)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// violation says what go-dcgm has of it, with its unit.
func violation(v *dcgm.PolicyViolation) own.Violation {
	to := own.Violation{GPU: v.GPU}
	for name, condition := range conditions() {
		if condition == v.Condition {
			to.Condition = name
		}
	}
	switch d := v.Data.(type) {
	case dcgm.DbePolicyCondition:
		to.Text = fmt.Sprintf("%d in %s", d.NumErrors, d.Location)
	case dcgm.PciPolicyCondition:
		to.Text = fmt.Sprintf("%d replays", d.ReplayCounter)
	case dcgm.RetiredPagesPolicyCondition:
		to.Text = fmt.Sprintf("%d pages retired for corrected, %d for uncorrected errors", d.SbePages, d.DbePages)
	case dcgm.ThermalPolicyCondition:
		to.Text = fmt.Sprintf("%d degrees Celsius", d.ThermalViolation)
	case dcgm.PowerPolicyCondition:
		to.Text = fmt.Sprintf("%d W", d.PowerViolation)
	case dcgm.NvlinkPolicyCondition:
		to.Text = fmt.Sprintf("%d errors in field %d", d.Counter, d.FieldId)
	}
	return to
}
