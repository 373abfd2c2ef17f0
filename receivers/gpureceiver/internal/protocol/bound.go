package protocol

import "github.com/tracecoreai/tracecore/internal/cut"

// mostText bounds what a library says: NVML's and DCGM's own texts have up to 256 bytes
// (NVML_DEVICE_NAME_V2_BUFFER_SIZE 96, DCGM_MAX_STR_LENGTH 256), messages of health
// watches up to 1,024 (DCGM_ERR_MSG_LENGTH 512 and what it is put into).
const mostText = 1024

// bound cuts the texts of a message. What names a GPU stays apart from another that
// begins alike: cut.Text ends in a hash.
func (m *Message) bound() {
	if m.State != nil {
		short(&m.State.Name, &m.State.Detail, &m.State.Driver, &m.State.Library)
	}
	if m.Event != nil {
		short(&m.Event.PCI, &m.Event.Kind, &m.Event.Text)
	}
	if m.Hung != nil {
		short(&m.Hung.Call, &m.Hung.GPU)
	}
	if m.Snapshot != nil {
		for i := range m.Snapshot.GPUs {
			m.Snapshot.GPUs[i].bound()
		}
	}
}

func (g *GPU) bound() {
	short(&g.PCI, &g.UUID, &g.Model, &g.Serial, &g.VBIOS, &g.Computed)
	for i := range g.MIG {
		short(&g.MIG[i].UUID)
	}
	for i := range g.Health {
		short(&g.Health[i].System, &g.Health[i].Text)
	}
	for i := range g.Failures {
		short(&g.Failures[i].Call, &g.Failures[i].Code)
	}
	for i := range g.ECC {
		short(&g.ECC[i].Type, &g.ECC[i].Lifetime, &g.ECC[i].Location)
	}
}

func short(texts ...*string) {
	for _, text := range texts {
		*text = cut.Text(*text, mostText)
	}
}
