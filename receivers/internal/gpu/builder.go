package gpu

import "go.opentelemetry.io/collector/pdata/pcommon"

// Builder records data points, as mdatagen makes it for each receiver that has
// these metrics.
type Builder interface {
	RecordHwEnergyDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string)
	RecordHwErrorsDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, errorType string)
	RecordHwGpuEccErrorsDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, errorType string, eccLifetime string, eccLocation string)
	RecordHwGpuIoDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, networkIoDirection string)
	RecordHwGpuMemoryControllerUtilizationDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string)
	RecordHwGpuMemoryFreeDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string)
	RecordHwGpuMemoryLimitDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string)
	RecordHwGpuMemoryRemapFailedDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string)
	RecordHwGpuMemoryRemapPendingDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string)
	RecordHwGpuMemoryRemappedRowsDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, errorType string)
	RecordHwGpuMemoryUsageDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string)
	RecordHwGpuMemoryUtilizationDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string)
	RecordHwGpuNvlinkErrorsDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, nvlinkError string, nvlinkLink int64)
	RecordHwGpuNvlinkIoDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, nvlinkLink int64, networkIoDirection string)
	RecordHwGpuNvlinkUpDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, nvlinkLink int64)
	RecordHwGpuPcieLinkGenerationDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string)
	RecordHwGpuPcieLinkWidthDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string)
	RecordHwGpuPcieLinkWidthRatioDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string)
	RecordHwGpuRecoveryActionDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, recoveryAction string)
	RecordHwGpuSpeedDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, clock string)
	RecordHwGpuSpeedLimitDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, clock string)
	RecordHwGpuThrottleDurationDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string, throttleReason string)
	RecordHwGpuUtilizationDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string, task string)
	RecordHwPowerDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string)
	RecordHwPowerLimitDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string, hwLimitType string)
	RecordHwStatusDataPoint(ts pcommon.Timestamp, val int64, gpuID, hwID, hwType string, hwState string)
	RecordHwTemperatureDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string, hwSensorLocation string)
	RecordHwTemperatureLimitDataPoint(ts pcommon.Timestamp, val float64, gpuID, hwID, hwType string, hwLimitType string, hwSensorLocation string)
}
