use super::newer_first;

#[test]
fn versions_in_order_of_preference() {
    let mut versions = [
        "v1alpha1",
        "foo10",
        "v1",
        "v11beta2",
        "v10",
        "v3alpha1",
        "v12alpha1",
        "v2",
        "v10beta3",
        "foo1",
        "v11alpha2",
    ];
    versions.sort_by(|a, b| newer_first(a, b));
    assert_eq!(
        versions,
        [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v12alpha1",
            "v11alpha2",
            "v3alpha1",
            "v1alpha1",
            "foo1",
            "foo10"
        ]
    );
}
