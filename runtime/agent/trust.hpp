#pragma once

namespace insula::runtime::agent {

/// file_task::trust: has programs of the sandbox believe the authority. Runs as the sandbox's root.
void trust_authority(int channel, const char* pem);

} // namespace insula::runtime::agent
